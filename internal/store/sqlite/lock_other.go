//go:build !unix

package sqlite

import "context"

// lock does nothing on systems without flock. The user of the data directory must ensure there that
// only one engine uses it.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
