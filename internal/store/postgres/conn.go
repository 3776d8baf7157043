package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store/table"
	"github.com/jackc/pgx/v5/pgconn"
)

// conn is one connection with its prepared statements. It is used by one
// goroutine at a time. Statements go to the server in pipelines, their arguments
// as arrays in the wire's own form: at a hundred thousand rows a second, a
// general encoder is what one would mostly wait for.
type conn struct {
	pg       *pgconn.PgConn
	prepared map[string]*pgconn.StatementDescription
	names    int
	backend  uint32   // the process that answers
	identity identity // of what a writer is connected to
	guest    bool     // on somebody else's connection, which keeps no statements of ours
	policies table.Parsed[belay.Policy]
	specs    table.Parsed[belay.WorkerSpec]
	words    words
	desk     desk
}

// settings of every session, beside its name. Plans are made once and must not hang on what
// the statistics say at that moment: the tables are reached by their indexes in
// nested loops, however few rows they had when the plan was made.
var settings = map[string]string{
	"plan_cache_mode":               "force_generic_plan",
	"enable_seqscan":                "off",
	"enable_hashjoin":               "off",
	"enable_mergejoin":              "off",
	"enable_bitmapscan":             "off",
	"jit":                           "off",
	"client_min_messages":           "warning",
	"default_transaction_isolation": "read committed",
	// Servers hold rows for moments; an application's transaction, which may
	// hold an idempotency key, must not hold up all that is committed with it.
	"lock_timeout": "1000",
}

func connect(ctx context.Context, config *pgconn.Config) (*conn, error) {
	pg, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConnect, err)
	}
	return &conn{pg: pg, prepared: make(map[string]*pgconn.StatementDescription)}, nil
}

// close ends the connection, in order if the server still answers.
func (c *conn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.pg.Close(ctx) // what it could say changes nothing
}

// pipe gathers statements that go to the server together.
type pipe struct {
	*conn
	steps  []*step
	coming map[string]bool // texts that are being prepared

	pl   *pgconn.Pipeline // nil until the first statement is sent
	sent int              // steps that were
	size int              // bytes that are queued and not written yet
	gone bool             // the connection, which is being closed beside this
}

// step is a statement in a pipe.
type step struct {
	text   string
	params [][]byte
	desk   *desk               // where its arguments are put together
	row    func(columns) error // sees each row, and must not keep it
	miss   error               // what it means if the statement did not touch all rows it should
	once   bool                // not worth preparing
	name   string              // under which it is being prepared
}

func (c *conn) pipe() *pipe {
	c.desk.clear()
	return &pipe{conn: c, coming: make(map[string]bool)}
}

// add appends a statement; its arguments are added to what it gives.
func (p *pipe) add(text string, row func(columns) error) *step {
	if p.pl != nil {
		p.push()
	}
	s := &step{text: text, row: row, desk: &p.desk}
	p.steps = append(p.steps, s)
	return s
}

// wire says that every value goes and comes in binary.
var wire = []int16{1}

// failure is the error of a pipe, with the step it befell.
type failure struct {
	step int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// stream makes the pipe send each statement when the next is added, so that the
// server is at work while the rest is made ready. It is ended by run or stop.
func (p *pipe) stream(ctx context.Context) { p.pl = p.pg.StartPipeline(ctx) }

// burst is how many bytes are written at a time, and frame about as many as a
// statement takes beside its text and arguments.
const (
	burst = 64 << 10
	frame = 256
)

// push sends the statements that were added until now. On a connection that could not be
// written to nothing more is: it is closed by another goroutine, which writes to it too.
func (p *pipe) push() {
	if p.gone {
		p.desk.clear()
		return
	}
	for ; p.sent < len(p.steps); p.sent++ {
		s := p.steps[p.sent]
		size := 0
		for _, v := range s.params {
			size += 4 + len(v)
		}
		p.pg.Frontend().Send(&reserve{&p.desk, size + len(s.text) + frame})
		p.send(p.pl, s)
		p.size += size
		s.params = nil
	}
	p.desk.clear()
	if p.size > burst {
		p.size = 0
		p.gone = p.pl.Flush() != nil // what goes wrong shows in the end
	}
}

// run sends all statements in one go and reads what comes back. Its error is a
// failure that names the first statement that did not pass.
func (p *pipe) run(ctx context.Context) error {
	if p.pl == nil {
		p.stream(ctx)
	}
	p.push()
	if err := p.pl.Sync(); err != nil {
		return p.failed(p.pl, 0, err)
	}
	for i, s := range p.steps {
		if err := p.receive(p.pl, s); err != nil {
			return p.failed(p.pl, i, fmt.Errorf("%s: %w", table.Clip(s.text), err))
		}
	}
	if err := p.pl.Close(); err != nil {
		return p.failed(p.pl, len(p.steps), err)
	}
	return nil
}

// stop ends a pipe that streams before all was added. What was sent is carried
// out, as far as it passes.
func (p *pipe) stop() {
	_ = p.pl.Sync()
	_ = p.pl.Close()
}

// failed ends the pipeline and gives its error.
func (p *pipe) failed(pl *pgconn.Pipeline, step int, err error) error {
	_ = pl.Close() // repeats the error
	if p.pg.IsClosed() {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	return &failure{step, err}
}

// send queues a statement, and prepares it if it is new to the connection.
func (p *pipe) send(pl *pgconn.Pipeline, s *step) {
	if sd := p.prepared[s.text]; sd != nil {
		pl.SendQueryStatement(sd, s.params, wire, wire)
		return
	}
	if s.once || p.guest || p.coming[s.text] {
		pl.SendQueryParams(s.text, s.params, nil, wire, wire)
		return
	}
	p.names++
	p.coming[s.text] = true
	s.name = "b" + strconv.Itoa(p.names)
	pl.SendPrepare(s.name, s.text, nil)
	pl.SendQueryPrepared(s.name, s.params, wire, wire)
}

// receive reads the answer to one statement.
func (p *pipe) receive(pl *pgconn.Pipeline, s *step) error {
	for {
		r, err := pl.GetResults()
		if err != nil {
			return s.refused(err)
		}
		switch r := r.(type) {
		case *pgconn.StatementDescription:
			r.Name, r.SQL = s.name, s.text
			p.prepared[s.text] = r
		case *pgconn.ResultReader:
			return s.read(r)
		default:
			return fmt.Errorf("the database answers with %T", r)
		}
	}
}

// read shows the rows to the step. All of them are read, whatever it says.
func (s *step) read(r *pgconn.ResultReader) error {
	var failed error
	for r.NextRow() {
		if s.row != nil && failed == nil {
			failed = s.row(r.Values())
		}
	}
	_, err := r.Close()
	return cmp.Or(s.refused(err), failed)
}

// counted makes a statement with so many arguments fail, and with it all that
// follow, if it touches another number of rows than the last argument says.
func counted(text string, arguments int) string {
	return fmt.Sprintf("WITH touched AS (%s RETURNING 1) SELECT 1 / (count(*) = $%d::bigint)::integer FROM touched",
		text, arguments+1)
}

// refused tells the error of a statement that did not touch all its rows.
func (s *step) refused(err error) error {
	var reply *pgconn.PgError
	if s.miss != nil && errors.As(err, &reply) && reply.Code == "22012" {
		return s.miss
	}
	return err
}
