//go:build !unix

package sqlite

import "context"

// lock does nothing where there is no flock: one engine per data directory is
// for its owner to keep there.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
