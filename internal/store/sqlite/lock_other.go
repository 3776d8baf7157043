//go:build !unix

package sqlite

import "context"

// lock does nothing on systems without flock. The owner of the data directory has to make sure that
// one engine uses it.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
