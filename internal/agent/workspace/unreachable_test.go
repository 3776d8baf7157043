package workspace

import "testing"

// Rule: refused returns true for an error that proves that the other machine has answered; the
// caller of Prepare then does not retry. It returns false for every other error.
func TestRefusedDetectsAnswersOfTheServer(t *testing.T) {
	for said, want := range map[string]bool{
		"fatal: unable to access 'https://h/r.git/': Could not resolve host: h": false,
		"fatal: unable to access 'https://h/r.git/': Failed to connect to h port 443 after 0 ms: Connection " +
			"refused": false,
		"error: RPC failed; curl 56 GnuTLS recv error (-9): Error decoding the received TLS packet.":          false,
		"fatal: unable to access 'https://h/r.git/': The requested URL returned error: 503":                   false,
		"ssh: connect to host h port 22: Connection timed out\nfatal: Could not read from remote repository.": false,
		"fatal: the remote end hung up unexpectedly":                                                          false,
		"remote: Repository not found.\nfatal: repository 'https://h/r.git/' not found":                       true,
		"fatal: Authentication failed for 'https://h/r.git/'":                                                 true,
		"fatal: could not read Username for 'https://h': terminal prompts disabled":                           true,
		"git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.":                true,
		"fatal: unable to access 'https://h/r.git/': The requested URL returned error: 403":                   true,
		"fatal: unable to access 'https://h/r.git/': server certificate verification failed. CAfile: none " +
			"CRLfile: none": true,
	} {
		if got := refused(said); got != want {
			t.Errorf("%q: %v", said, got)
		}
	}
}
