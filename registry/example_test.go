package registry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/belaydev/belay/registry"
)

// dataDir makes a data directory for an example.
func dataDir() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "registry-example-")
	if err != nil {
		panic(err)
	}
	return filepath.Join(dir, "belay-data"), func() { _ = os.RemoveAll(dir) }
}

// A workflow registers, works while it renews its entry, yields when a swap asks it to, and releases
// the entry at the end.
func ExampleOpen() {
	dir, remove := dataDir()
	defer remove()
	ctx := context.Background()
	r, err := registry.Open(dir)
	if err != nil {
		panic(err)
	}
	w, err := r.Register(ctx, registry.Registration{
		Name: "nightly", Recipe: "llama-70b", TTL: time.Minute, Preemptible: true,
	})
	if err != nil {
		panic(err)
	}
	for page := range 3 {
		if asked, err := r.Preempted(ctx, w); err != nil || asked {
			break
		}
		fmt.Println("page", page)
		if w, err = r.Renew(ctx, w); err != nil {
			panic(err) // lease_lost: another workflow may use the resource now
		}
	}
	if err := r.Release(ctx, w); err != nil {
		panic(err)
	}
	// Output:
	// page 0
	// page 1
	// page 2
}

// A swap waits until no workflow of another recipe is left, and then changes the resource.
func ExampleSwap() {
	dir, remove := dataDir()
	defer remove()
	ctx := context.Background()
	r, err := registry.Open(dir)
	if err != nil {
		panic(err)
	}
	swap, err := r.Begin(ctx, "mistral")
	if err != nil {
		panic(err) // another swap is in progress
	}
	_, err = r.Register(ctx, registry.Registration{Name: "nightly", Recipe: "llama-70b"})
	fmt.Println("try again later:", errors.Is(err, syscall.EAGAIN))

	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = swap.Await(within, func(left []registry.Workflow) { fmt.Println("waiting for", len(left)) })
	if err == nil {
		fmt.Println("loading mistral")
	}
	if err := swap.End(ctx, err); err != nil {
		panic(err)
	}
	// Output:
	// try again later: true
	// loading mistral
}

func ExampleList() {
	dir, remove := dataDir()
	defer remove()
	s, err := registry.List(context.Background(), dir)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(s.Workflows), "workflows, swap in progress:", s.Swap != nil)
	// Output: 0 workflows, swap in progress: false
}

// A launcher registers a program that it has started: the entry lives as long as the program.
func ExampleIdentify() {
	dir, remove := dataDir()
	defer remove()
	ctx := context.Background()
	r, err := registry.Open(dir)
	if err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(ctx, "sleep", "60")
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	owner, err := registry.Identify(cmd.Process.Pid)
	if err != nil {
		panic(err)
	}
	if _, err := r.Register(ctx, registry.Registration{Name: "agent", Recipe: "mistral", Owner: owner}); err != nil {
		panic(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	s, err := r.List(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(s.Workflows), "workflows")
	// Output: 0 workflows
}

func ExampleSelf() {
	p, err := registry.Self()
	if err != nil {
		panic(err)
	}
	fmt.Println(p.PID == os.Getpid())
	// Output: true
}
