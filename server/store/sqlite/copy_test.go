package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// The copy has the agents up to some moment, each with its facts, although agents are
// created all the time.
func TestCopyIsOneMomentOfAStoreInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "muster.db")
	s := mustOpen(t, path)
	stop, done := make(chan struct{}), make(chan struct{})
	created := make(chan int, 1_000_000)
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Agents().Create(t.Context(), fleet.Agent{ID: fmt.Sprintf("a%06d", i), AccessKeyID: fmt.Sprint("k", i), PolicyID: "default"}); err != nil {
				t.Error(err)
				return
			}
			created <- i
		}
	}()
	for range 100 {
		<-created
	}
	before := 100
	other := mustOpenWith(t, path, Options{ReadOnly: true}) // as another process
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := other.Copy(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	close(stop)
	<-done
	if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy is %v, %v", info, err)
	}
	if err := other.Copy(t.Context(), to); err == nil {
		t.Error("a copy replaced a file")
	}
	if err := CheckWhole(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	c := mustOpen(t, to)
	n := 0
	err := c.Agents().Each(t.Context(), store.AgentFilter{}, func(a fleet.Agent) {
		if want := fmt.Sprintf("a%06d", n); a.ID != want || a.PolicyID != "default" {
			t.Errorf("agent %d is %s", n, a.ID)
		}
		n++
	})
	if err != nil || n < before || n > before+len(created) {
		t.Errorf("the copy has %d agents, %d to %d had been created: %v", n, before, before+len(created), err)
	}
}

func TestDamageAnywhereIsFoundByCheckWhole(t *testing.T) {
	path := fileWithAgent(t)
	if err := CheckWhole(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for at := page; at < len(whole); at += page { // the header of a page that is in use says what kind it is
		if whole[at] == 0 {
			continue
		}
		bad := append([]byte{}, whole...)
		copy(bad[at:], "damaged!")
		to := filepath.Join(t.TempDir(), "bad.db")
		if err := os.WriteFile(to, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckWhole(t.Context(), to); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("page %d: %v", at/page, err)
		}
	}
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckWhole(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not an SQLite file") {
		t.Errorf("a text: %v", err)
	}
}
