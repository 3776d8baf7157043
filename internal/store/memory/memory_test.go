package memory_test

import (
	"testing"

	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, clock *storetest.Clock) store.Store { return memory.New(clock.Now) })
}
