package embedded_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// A transaction creates an order and submits the order's execution, so that both exist or neither
// exists.
func ExampleSubmitTx() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, "postgres://app@localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var order int64
		if err := tx.QueryRow(ctx, "INSERT INTO orders (customer) VALUES ($1) RETURNING id",
			"ada").Scan(&order); err != nil {
			return err
		}
		accepted, err := embedded.SubmitTx(ctx, tx, belay.Submission{
			Workflow: "ship", Input: fmt.Appendf(nil, `{"order": %d}`, order), IdempotencyKey: fmt.Sprint("order-",
				order),
		})
		if err != nil {
			return err
		}
		return accepted[0].Err
	})
	if err != nil {
		log.Fatal(err)
	}
}
