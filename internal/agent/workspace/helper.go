package workspace

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
)

// helperName is the Args[0] of a helper process.
const helperName = "belay-workspace"

// Helper returns the helper program of a Manager, which the package documentation describes. Every
// program that makes workspaces must pass it to [process.Main]: in main, and in the TestMain of a
// test program.
func Helper() process.Helper { return process.Helper{Name: helperName, Run: help} }

// order is the input of a helper: exactly one of the pointers is set. The process that started the
// helper wrote the order, so the helper trusts it.
type order struct {
	Git     string // the path of git; "" if git is not installed
	Scratch string // an empty directory for this helper alone
	Files   int    // number of descriptors passed to the helper

	Read    *readOrder
	Keep    *keepOrder
	Fill    *fillOrder
	Restore *restoreOrder
	Salvage *salvageOrder
	Compose *composeOrder
	Push    *pushOrder
}

// answer is the output of a helper. An attacker who makes git run a program in a helper can write
// any answer, so the process that reads an answer trusts the answer no more than it trusts the
// helper's user.
type answer struct {
	Failed  *failure `json:"failed,omitempty"`
	Read    *reading `json:"read,omitempty"`
	Found   *found   `json:"found,omitempty"`
	Noted   []byte   `json:"noted,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Left    []string `json:"left,omitempty"`
	Salvage *Salvage `json:"salvage,omitempty"`
	// Composed is the result of a composeOrder, and Pushed the result of a pushOrder.
	Composed *Composed `json:"composed,omitempty"`
	Pushed   string    `json:"pushed,omitempty"`
}

// failure is an error of a helper in a form that can be encoded as JSON.
type failure struct {
	Code    belay.Code `json:"code,omitempty"`
	Message string     `json:"message"`
	// Cause is the text of the error that the error wraps.
	Cause string `json:"cause,omitempty"`
	// Spoilt says that the base (the cached clone) may be damaged, and that the task may succeed with a
	// newly made base.
	Spoilt bool `json:"spoilt,omitempty"`
}

// spoilt wraps an error that may come from a damaged base (the cached clone). The task may succeed
// with a newly made base.
type spoilt struct{ error }

func (s spoilt) Unwrap() error { return s.error }

func isSpoilt(err error) bool {
	var s spoilt
	return errors.As(err, &s)
}

func failed(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Message: err.Error(), Spoilt: isSpoilt(err)}
	var e *belay.Error
	if errors.As(err, &e) {
		f.Code, f.Message = e.Code, e.Message
		if e.Err != nil {
			f.Cause = e.Err.Error()
		}
	}
	return f
}

// refusals are the error codes that a helper may return. The process that started the helper
// accepts no other code from the helper.
var refusals = []belay.Code{
	belay.CodeInvalid, belay.CodeNotFound, belay.CodeUnavailable, belay.CodeForbidden, belay.CodePayloadTooLarge,
	belay.CodeConflict,
}

// err returns the error that a failure describes. It makes the texts of the failure printable.
func (f *failure) err() error {
	if f == nil {
		return nil
	}
	err := errors.New(brief(f.Message))
	if slices.Contains(refusals, f.Code) {
		e := &belay.Error{Code: f.Code, Message: brief(f.Message)}
		if f.Cause != "" {
			e.Err = errors.New(brief(f.Cause))
		}
		err = e
	}
	if f.Spoilt {
		return spoilt{err}
	}
	return err
}

// brief shortens an error text from a helper and makes it printable.
func brief(s string) string { return shorten(s, 4096) }

// shortened shortens a list of texts from a helper and makes them printable.
func shortened(all []string) (kept []string) {
	for _, s := range all[:min(len(all), 100)] {
		kept = append(kept, brief(s))
	}
	return kept
}

// shorten cuts a text from a helper to a maximum number of bytes (most) and makes it printable.
func shorten(s string, most int) string { return printable(s[:min(len(s), most)]) }

// helper is the state of a helper process; it exists only in that process.
type helper struct {
	order
	files []*os.File
	git   git
}

// help is the main function of a helper process and returns its exit code.
func help() int {
	h := &helper{}
	if err := gob.NewDecoder(os.Stdin).Decode(&h.order); err != nil {
		fmt.Fprintf(os.Stderr, "%s: this program is started by belay, not by hand: %v\n", helperName, err)
		return 2
	}
	for i := range h.Files {
		const first = 3
		unix.CloseOnExec(first + i) // programs that the helper starts do not inherit the descriptor
		h.files = append(h.files, os.NewFile(uintptr(first+i), "descriptor"))
	}
	a, err := h.work(context.Background())
	if a == nil {
		a = &answer{}
	}
	a.Failed = failed(err)
	err = json.NewEncoder(os.Stdout).Encode(a)
	runtime.KeepAlive(h)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: answer: %v\n", helperName, err)
		return 1
	}
	return 0
}

func (h *helper) work(ctx context.Context) (*answer, error) {
	h.git = git{bin: h.Git, home: filepath.Join(h.Scratch, "nohome")}
	for _, dir := range []string{h.git.home, filepath.Join(h.Scratch, "scratch")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	switch {
	case h.Read != nil:
		return h.read(ctx, h.Read)
	case h.Keep != nil:
		return h.keep(ctx, h.Keep)
	case h.Fill != nil:
		return h.fill(ctx, h.Fill)
	case h.Restore != nil:
		return h.restore(ctx, h.Restore)
	case h.Salvage != nil:
		return h.salvage(ctx, h.Salvage)
	case h.Compose != nil:
		return h.compose(ctx, h.Compose)
	case h.Push != nil:
		return h.push(ctx, h.Push)
	}
	return nil, errors.New("the order is empty")
}
