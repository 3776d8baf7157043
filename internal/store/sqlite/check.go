package sqlite

import (
	"context"
	"fmt"
)

// Check looks for damage in the whole database file. It returns SQLite's version and a list of the
// damage, which is empty for a sound database. It reads every page, so it takes long for a large
// database.
func (s *Store) Check(ctx context.Context) (version string, damage []string, err error) {
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		if err := c.query(ctx, "SELECT sqlite_version()", func(r columns) error {
			version = r.text(0)
			return nil
		}); err != nil {
			return err
		}
		err := c.query(ctx, "PRAGMA quick_check(20)", func(r columns) error {
			if line := r.text(0); line != "ok" {
				damage = append(damage, line)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("check the database: %w", err)
		}
		return nil
	})
	return version, damage, classify("check", err)
}
