// Command web-orders is a web application that writes an order and submits the order's execution in
// one transaction of a PostgreSQL database.
//
//	go run ./examples/web-orders postgres://app@localhost/app 127.0.0.1:8080
//	curl -d '{"customer": "ada"}' http://127.0.0.1:8080/orders   # {"order": 1}
//	curl http://127.0.0.1:8080/orders/1                          # {"state": "shipped"}
//
// If the database refuses the order, no execution is stored. If the database commits the order, the
// order is shipped, even if the application is killed right after the commit. Any number of copies
// of the program may share the database.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

const schema = `
CREATE TABLE IF NOT EXISTS orders (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer text NOT NULL CHECK (customer <> ''),
  state    text NOT NULL DEFAULT 'new'
)`

// shop is the application.
type shop struct{ db *pgxpool.Pool }

// ship is the workflow. Its input is the id of an order.
func (s *shop) ship(ctx context.Context, order int64) (string, error) {
	for _, state := range []string{"packed", "shipped"} {
		err := workflow.Do(ctx, state, func(ctx context.Context) error {
			_, err := s.db.Exec(ctx, "UPDATE orders SET state = $2 WHERE id = $1", order, state)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return "shipped", nil
}

// create inserts an order and submits its shipping, in one transaction.
func (s *shop) create(ctx context.Context, customer string) (id int64, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "INSERT INTO orders (customer) VALUES ($1) RETURNING id",
			customer).Scan(&id); err != nil {
			return err
		}
		accepted, err := embedded.SubmitTx(ctx, tx, belay.Submission{
			Workflow: "ship", Input: fmt.Append(nil, id), IdempotencyKey: fmt.Sprint("order-", id),
		})
		if err != nil {
			return err
		}
		return accepted[0].Err
	})
	return id, err
}

func (s *shop) postOrder(w http.ResponseWriter, r *http.Request) {
	var body struct{ Customer string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id, err := s.create(r.Context(), body.Customer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "{\"order\": %d}\n", id)
}

func (s *shop) getOrder(w http.ResponseWriter, r *http.Request) {
	var state string
	err := s.db.QueryRow(r.Context(), "SELECT state FROM orders WHERE id::text = $1", r.PathValue("id")).Scan(&state)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	fmt.Fprintf(w, "{\"state\": %q}\n", state)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: web-orders DATABASE ADDRESS")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // no deferred call is needed any more
	}
}

// run serves HTTP and runs a worker until ctx ends.
func run(ctx context.Context, database, address string) error {
	quiet := slog.New(slog.DiscardHandler)
	b, err := embedded.Open(ctx, database, embedded.Logger(quiet)) // creates Belay's tables
	if err != nil {
		return err
	}
	defer b.Close()
	db, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(ctx, schema); err != nil {
		return err
	}
	s := &shop{db}
	w := worker.New(b, worker.Options{Log: quiet})
	worker.Register(w, "ship", s.ship)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.postOrder)
	mux.HandleFunc("GET /orders/{id}", s.getOrder)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("serving http://" + l.Addr().String())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err = server.Serve(l); errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, <-done)
}
