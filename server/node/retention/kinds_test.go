package retention

import (
	"testing"

	"github.com/muster-fleet/muster/server/store"
)

// A kind whose documents this package removes has a part here, and no other kind has.
func TestEveryKindThatNeedsItIsRemoved(t *testing.T) {
	t.Parallel()
	removed := map[*store.Info]bool{}
	for _, p := range parts {
		removed[p.kind] = true
	}
	for _, kind := range store.Kinds() {
		if want := kind.Leaves == store.ByRetention; removed[kind] != want {
			t.Errorf("%s: removed is %t, want %t", kind.Plural, removed[kind], want)
		}
		if bounded := kind.Keep != (store.Limits{}); bounded != (removed[kind] && kind != store.KindUploads.Info) {
			t.Errorf("%s: what is kept is %+v", kind.Plural, kind.Keep)
		}
	}
}
