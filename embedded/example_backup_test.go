package embedded_test

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// backup creates a data directory with one execution, and a backup of it.
func backup(ctx context.Context, dir string) (file string, err error) {
	b, err := embedded.Open(ctx, "sqlite:"+filepath.Join(dir, "data"), embedded.Logger(quiet))
	if err != nil {
		return "", err
	}
	defer b.Close()
	if err := greet(ctx, b); err != nil {
		return "", err
	}
	file = filepath.Join(dir, "backup.db")
	_, err = embedded.Backup(ctx, "sqlite:"+filepath.Join(dir, "data"), file, embedded.CopyOptions{})
	return file, err
}

// A program makes a backup while the engine runs.
func ExampleBackup() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	data := "sqlite:" + filepath.Join(dir, "data")
	b, err := embedded.Open(ctx, data, embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	if err := greet(ctx, b); err != nil {
		fmt.Println(err)
	}
	s, err := embedded.Backup(ctx, data, filepath.Join(dir, "backup.db"), embedded.CopyOptions{})
	fmt.Println(s.Executions, err)
	// Output: 1 <nil>
}

// A program checks a backup for damage before the backup is needed.
func ExampleVerify() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	file, err := backup(ctx, dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := embedded.Verify(ctx, file)
	fmt.Println(s.Executions, err)
	// Output: 1 <nil>
}

// A program makes a data directory from a backup. New tokens are larger than all tokens that
// claims got before the restore.
func ExampleRestore() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	file, err := backup(ctx, dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	url := "sqlite:" + filepath.Join(dir, "restored")
	done, err := embedded.Restore(ctx, file, url, embedded.CopyOptions{})
	fmt.Println(done.Executions, err)
	b, err := embedded.Open(ctx, url, embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	page, err := b.Executions(ctx, belay.Filter{})
	fmt.Println(len(page.Executions), err)
	// Output:
	// 1 <nil>
	// 1 <nil>
}

// A data directory that was copied from a snapshot of its disk gets a new epoch (a new range of larger
// tokens), so that no two claims get the same token.
func ExampleBeginEpoch() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	if _, err := backup(ctx, dir); err != nil {
		fmt.Println(err)
		return
	}
	epoch, ended, err := embedded.BeginEpoch(ctx, "sqlite:"+filepath.Join(dir, "data"), false)
	fmt.Println(epoch > 0, ended, err)
	// Output: true 0 <nil>
}

// A program lists the pending migrations of a store and then carries them out. Opening the store
// would also carry them out.
func ExampleMigrate() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	steps, err := embedded.Migrate(ctx, "sqlite:"+dir, true)
	fmt.Println(len(steps) > 0, err)
	taken, err := embedded.Migrate(ctx, "sqlite:"+dir, false)
	fmt.Println(len(taken) == len(steps), err)
	steps, err = embedded.Migrate(ctx, "sqlite:"+dir, true)
	fmt.Println(len(steps), err)
	// Output:
	// true <nil>
	// true <nil>
	// 0 <nil>
}
