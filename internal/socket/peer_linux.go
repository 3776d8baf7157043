package socket

import (
	"fmt"
	"net"
	"os"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/peer"
)

// trusted refuses a peer of another user than this one, the directory's owner and
// root. The directory's mode keeps others out already, unless somebody has opened
// it.
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
			"the socket of the data directory belongs to process %d of user %d; the directory must be yours "+
				"alone: chmod 700", cred.PID, cred.UID)}
	}
	return nil
}
