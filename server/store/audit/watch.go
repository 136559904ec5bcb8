package audit

import (
	"context"

	"github.com/muster-fleet/muster/server/store"
)

// Watch returns a store that writes the entry of a call before the call changes any document that
// operators know of, unless an entry was written. If the entry cannot be written, nothing is
// changed.
func Watch(s store.Store) store.Store {
	return watched{store.Intercept(s, func(ctx context.Context, c store.Call, do func() error) error {
		if recorded(c) {
			if err := RecordCall(ctx, s); err != nil {
				return err
			}
		}
		return do()
	})}
}

// recorded reports whether a call may change what operators know of. Touch is what agents say, and
// GetOrPut makes what a server needs.
func recorded(c store.Call) bool {
	return c.Writes() && !c.Kind.Inner && c.Method != "Touch" && c.Method != "GetOrPut"
}

type watched struct{ store.Store }

func (w watched) Audit() store.Audit { return watchedTrail{w.Store.Audit()} }
