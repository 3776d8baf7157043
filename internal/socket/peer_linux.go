package socket

import (
	"fmt"
	"net"
	"os"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/peer"
)

// trusted refuses a peer whose user is not this user, the directory's owner or root. The mode of
// the directory normally keeps other users out, but the mode may have been changed.
func trusted(c net.Conn, dir string) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	cred, err := peer.CredentialsOf(u)
	if err != nil {
		return err
	}
	if cred.UID != 0 && int(cred.UID) != os.Geteuid() && !owns(cred.UID, dir) {
		return &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
			"the socket of the data directory belongs to process %d of user %d; close the directory to other users "+
				"with: chmod 700", cred.PID, cred.UID)}
	}
	return nil
}
