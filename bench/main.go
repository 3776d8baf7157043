package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/belaydev/belay/bench/runner/belay"
	"github.com/belaydev/belay/bench/runner/ceiling"
	"github.com/belaydev/belay/bench/runner/dbos"
	"github.com/belaydev/belay/bench/runner/git"
	"github.com/belaydev/belay/bench/runner/registry"
	"github.com/belaydev/belay/bench/runner/river"
	"github.com/belaydev/belay/bench/trial"
)

// contenders are the contenders that this program contains; Temporal is a program of its own.
var contenders = map[string]trial.Func{
	"belay": belay.Run, "river": river.Run, "dbos": dbos.Run, "ceiling": ceiling.Run, "git": git.Run,
	"registry": registry.Run, "flock": registry.Run,
}

// options are the user's options.
type options struct {
	quick    bool
	rounds   int
	json     string
	only     string
	stores   string
	belay    string
	temporal string
	before   string
	profile  string
	ended    int
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	if len(os.Args) == 2 && os.Args[1] == "trial" {
		if err := trial.Serve(os.Stdin, os.Stdout, contenders); err != nil {
			log.Fatal(err)
		}
		return
	}
	var o options
	flag.BoolVar(&o.quick, "quick", false, "one short round without Temporal, which shows that the trials work, "+
		"not how fast the contenders are")
	flag.IntVar(&o.rounds, "rounds", 0, "how often each trial is repeated; 0 means 3, or 1 with -quick")
	flag.StringVar(&o.json, "json", "", "write all results to this file")
	flag.StringVar(&o.only, "only", "", "run only the trials with one of these words in their names, such as "+
		"drain,river/tuned")
	flag.StringVar(&o.stores, "stores", "postgres,sqlite,repo,disk",
		"the stores to measure on; repo is the repository that agents' jobs share, disk a directory")
	flag.StringVar(&o.belay, "belay", "", "the belay binary that serves HTTP, instead of one built from ..")
	flag.StringVar(&o.temporal, "temporal", "", "the program of module ./temporal, if it is built already, or none")
	flag.StringVar(&o.before, "before", "", "the bench program of another revision; it repeats each trial of Belay "+
		"in this process, and the report compares the two")
	flag.StringVar(&o.profile, "cpuprofile", "", "write CPU profiles of Belay's trials into this directory")
	flag.IntVar(&o.ended, "n", 1_000_000, "how many ended executions the trial pages has; it has a tenth as many "+
		"pending ones")
	flag.Parse()
	if o.rounds == 0 {
		o.rounds = 3
		if o.quick {
			o.rounds = 1
		}
	}
	if o.quick && o.temporal == "" {
		o.temporal = "none"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run carries out all trials and prints the results. It fails if a value is below its floor (the
// worst accepted value).
func run(ctx context.Context, o options) error {
	b, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	r := &report{Machine: describe(), PostgreSQL: b.settings(), Versions: b.versions(ctx), Quick: o.quick,
		Samples: make(map[string][]trial.Sample)}
	say("%s", strings.Join(append(r.Machine, r.PostgreSQL...), "\n"))
	all := b.trials(o)
	for round := range o.rounds {
		for i := range all {
			p := all[i]
			if round%2 == 1 {
				p = all[len(all)-1-i]
			}
			if p.once && round > 0 {
				continue
			}
			s := b.run(ctx, p)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			say("round %d of %d  %-42s %s", round+1, o.rounds, p.name(), s.line())
			r.Samples[p.name()] = append(r.Samples[p.name()], trial.Sample(s))
		}
	}
	r.judge()
	fmt.Print(r)
	if o.json != "" {
		if err := r.write(o.json); err != nil {
			return err
		}
	}
	return r.failed()
}

func (r *report) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644) //nolint:gosec // every user may read the report
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
