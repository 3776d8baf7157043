package belay

import "context"

type actorKey struct{}

// WithActor gives a context for what an actor does: a key's name, a user's. A Backend in
// this process writes it in the audit of what is done; it proves nothing, and decides
// nothing.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf is the actor of a context, empty if the context names none.
func ActorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}
