package process

import "context"

// Run starts the command c and waits for its end; see [Start] and [Tree.Wait].
func Run(ctx context.Context, c Command) (Result, error) {
	t, err := Start(ctx, c)
	if err != nil {
		return Result{Code: -1}, err
	}
	return t.Wait()
}
