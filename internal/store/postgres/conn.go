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

// conn is one connection with its prepared statements. Only one goroutine may use it at a time.
// Statements go to the server in pipelines, with arrays as arguments in PostgreSQL's binary format:
// at a hundred thousand rows a second a general encoder would take most of the time.
type conn struct {
	pg       *pgconn.PgConn
	prepared map[string]*pgconn.StatementDescription
	names    int
	backend  uint32   // number of the server's process
	identity identity // identity of the database that a writer is connected to
	guest    bool     // an application's connection, on which no statements are prepared
	shared   table.SharedCache
	specs    table.Parsed[belay.WorkerSpec]
	interner interner
	buffer   buffer
}

// settings are the settings of every session, in addition to its name. PostgreSQL makes each plan
// once, and a plan must not depend on the statistics at that time: every plan reaches the tables by
// their indexes in nested loops, even if the tables had few rows when the plan was made.
var settings = map[string]string{
	"plan_cache_mode":               "force_generic_plan",
	"enable_seqscan":                "off",
	"enable_hashjoin":               "off",
	"enable_mergejoin":              "off",
	"enable_bitmapscan":             "off",
	"jit":                           "off",
	"client_min_messages":           "warning",
	"default_transaction_isolation": "read committed",
	// Servers lock rows only for moments. An application's transaction may lock an idempotency key
	// for longer; this limit keeps such a lock from delaying the other commands of a batch.
	"lock_timeout": "1000",
}

func connect(ctx context.Context, config *pgconn.Config) (*conn, error) {
	pg, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConnect, err)
	}
	return &conn{pg: pg, prepared: make(map[string]*pgconn.StatementDescription)}, nil
}

// close ends the connection, with a message to the server if it still answers.
func (c *conn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.pg.Close(ctx) // an error of Close has no effect
}

// pipe collects statements that go to the server together.
type pipe struct {
	*conn
	steps  []*step
	coming map[string]bool // texts of statements that are being prepared

	pl   *pgconn.Pipeline // nil until the first statement is sent
	sent int              // number of steps that were sent
	size int              // bytes that are queued and not written yet
	gone bool             // the connection has failed, and another goroutine is closing it
}

// step is a statement in a pipe.
type step struct {
	text   string
	params [][]byte
	buffer *buffer             // buffer for the statement's arguments
	row    func(columns) error // called with each row; must not keep the row
	miss   error               // the error to return if the statement changes another number of rows than it must
	once   bool                // the statement runs only once, so it is not prepared
	name   string              // name under which the statement is being prepared
}

func (c *conn) pipe() *pipe {
	c.buffer.clear()
	return &pipe{conn: c, coming: make(map[string]bool)}
}

// add appends a statement. The caller adds the arguments to the step that add returns.
func (p *pipe) add(text string, row func(columns) error) *step {
	if p.pl != nil {
		p.push()
	}
	s := &step{text: text, row: row, buffer: &p.buffer}
	p.steps = append(p.steps, s)
	return s
}

// binaryFormat requests the binary format for every value.
var binaryFormat = []int16{1}

// failure is the error of a pipe, with the number of the step that failed.
type failure struct {
	step int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// stream makes the pipe send each statement when the caller adds the next statement, so that the
// server already works while the caller prepares further statements. run or stop ends the stream.
func (p *pipe) stream(ctx context.Context) { p.pl = p.pg.StartPipeline(ctx) }

// burst is the number of bytes that are written at a time. frame is the approximate number of bytes
// of a statement without its text and arguments.
const (
	burst = 64 << 10
	frame = 256
)

// push sends the statements that were added until now. After a failed write it sends nothing more,
// because another goroutine then writes to the connection in order to close it.
func (p *pipe) push() {
	if p.gone {
		p.buffer.clear()
		return
	}
	for ; p.sent < len(p.steps); p.sent++ {
		s := p.steps[p.sent]
		size := 0
		for _, v := range s.params {
			size += 4 + len(v)
		}
		p.pg.Frontend().Send(&reserve{&p.buffer, size + len(s.text) + frame})
		p.send(p.pl, s)
		p.size += size
		s.params = nil
	}
	p.buffer.clear()
	if p.size > burst {
		p.size = 0
		p.gone = p.pl.Flush() != nil // run reports the error of the connection
	}
}

// run sends all statements together and reads the answers. Its error is a failure that names the
// first statement that failed.
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

// stop ends a streaming pipe before all statements were added. The server carries out the
// statements that were sent.
func (p *pipe) stop() {
	_ = p.pl.Sync()
	_ = p.pl.Close()
}

// failed ends the pipeline and returns its error.
func (p *pipe) failed(pl *pgconn.Pipeline, step int, err error) error {
	_ = pl.Close() // an error of Close adds nothing to err
	if p.pg.IsClosed() {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	return &failure{step, err}
}

// send queues a statement, and prepares it if it is new on the connection.
func (p *pipe) send(pl *pgconn.Pipeline, s *step) {
	if sd := p.prepared[s.text]; sd != nil {
		pl.SendQueryStatement(sd, s.params, binaryFormat, binaryFormat)
		return
	}
	if s.once || p.guest || p.coming[s.text] {
		pl.SendQueryParams(s.text, s.params, nil, binaryFormat, binaryFormat)
		return
	}
	p.names++
	p.coming[s.text] = true
	s.name = "b" + strconv.Itoa(p.names)
	pl.SendPrepare(s.name, s.text, nil)
	pl.SendQueryPrepared(s.name, s.params, binaryFormat, binaryFormat)
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

// read passes the rows to the step. It reads all of them, even after an error of the step.
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

// counted returns the statement with one more argument, the number of rows that it must change. If
// the statement changes another number of rows, it fails, and with it the whole batch. arguments is
// the number of the statement's own arguments.
func counted(text string, arguments int) string {
	return fmt.Sprintf("WITH touched AS (%s RETURNING 1) SELECT 1 / (count(*) = $%d::bigint)::integer FROM touched",
		text, arguments+1)
}

// refused returns the error of a statement, or s.miss if the statement did not change all its rows.
func (s *step) refused(err error) error {
	var reply *pgconn.PgError
	if s.miss != nil && errors.As(err, &reply) && reply.Code == "22012" {
		return s.miss
	}
	return err
}
