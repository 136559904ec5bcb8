package access

import (
	"fmt"
	"testing"
	"time"
)

func TestMemoryOfWrongKeysIsBounded(t *testing.T) {
	var a attempts
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	for i := range 3 * maxSources {
		a.failed(fmt.Sprint("source ", i), now)
		if n := len(a.sources); n > maxSources {
			t.Fatalf("%d sources are remembered, want at most %d", n, maxSources)
		}
	}
	for i := range maxSources {
		a.failed(fmt.Sprint("later ", i), now.Add(forgetAfter+1))
	}
	for source, f := range a.sources {
		if f.last.Equal(now) {
			t.Fatalf("%s is remembered for more than a quarter of an hour", source)
		}
	}
}
