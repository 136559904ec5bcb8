//go:build linux

package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// stacks are examples from profiles of the server and the generators, from the leaf on.
var stacks = []struct {
	name  string
	stack []string
	want  string
}{
	{"a cipher works for TLS", []string{"crypto/internal/fips140/aes/gcm.gcmAesEnc", "crypto/tls.(*Conn).Write", "net/http.(*response).Write"}, groupTLS},
	{"a digest works for its caller", []string{"crypto/sha256.Sum256", "github.com/muster-fleet/muster/server/agents/checkin.FingerprintOf", "net/http.(*conn).serve"}, groupOwn},
	{"bytes go to an agent", []string{"internal/runtime/syscall/linux.Syscall6", "syscall.RawSyscall6", "syscall.write", "internal/poll.(*FD).Write", "crypto/tls.(*Conn).Write"}, groupNetwork},
	{"bytes go to the file", []string{"internal/runtime/syscall/linux.Syscall6", "syscall.RawSyscall6", "syscall.Syscall6", "modernc.org/libc.Xpwrite", "modernc.org/sqlite/lib.Xsqlite3_step"}, groupDisk},
	{"SQL", []string{"runtime.memmove", "modernc.org/sqlite/lib._sqlite3VdbeExec", "database/sql.(*DB).query", "github.com/muster-fleet/muster/server/rollout/action.(*Service).Ack"}, groupStore},
	{"a document is encoded for the store", []string{"encoding/json.appendString", "github.com/muster-fleet/muster/server/store/sqlite.put"}, groupJSON},
	{"a header is read", []string{"net/textproto.CanonicalMIMEHeaderKey", "net/http.readRequest"}, groupHTTP},
	{"a route is found", []string{"runtime.memequal", "github.com/gin-gonic/gin.(*node).getValue", "net/http.serverHandler.ServeHTTP"}, groupHTTP},
	{"memory is asked for", []string{"runtime.nextFreeFast", "runtime.mallocgc", "encoding/json.Unmarshal"}, groupMemory},
	{"memory is looked through", []string{"runtime.scanobject", "runtime.gcDrain", "runtime.gcBgMarkWorker.func2"}, groupMemory},
	{"a goroutine is looked for", []string{"runtime.futex", "runtime.futexsleep", "runtime.findRunnable", "runtime.mcall"}, groupScheduler},
	{"a goroutine is woken", []string{"runtime.futex", "runtime.futexwakeup", "sync.(*Mutex).Unlock", "database/sql.(*DB).conn"}, groupScheduler},
	{"the poller waits", []string{"internal/runtime/syscall/linux.Syscall6", "internal/runtime/syscall/linux.EpollWait", "runtime.netpoll", "runtime.findRunnable"}, groupScheduler},
	{"the agents' loop waits", []string{"internal/runtime/syscall/linux.Syscall6", "syscall.Syscall6", "golang.org/x/sys/unix.EpollWait", "github.com/muster-fleet/muster/testing/tools/loadtest/generator.(*loop).run"}, groupNetwork},
	{"an unknown function", []string{"time.now"}, groupOther},
	{"no stack", nil, groupOther},
}

func TestGroupOf(t *testing.T) {
	for _, c := range stacks {
		if got := groupOf(c.stack); got != c.want {
			t.Errorf("%s: that is %q, want %q", c.name, got, c.want)
		}
		if !slices.Contains(Groups, c.want) {
			t.Errorf("%q is missing in Groups", c.want)
		}
	}
}

// The groups add up to the whole time, and each names its largest functions.
func TestSideDividesAllTimeOfAProfile(t *testing.T) {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}}
	whole := time.Duration(0)
	for i, c := range stacks {
		sample := &profile.Sample{Value: []int64{1, int64(i+1) * int64(10*time.Millisecond)}}
		whole += time.Duration(sample.Value[1])
		for _, name := range c.stack {
			sample.Location = append(sample.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
		}
		p.Sample = append(p.Sample, sample)
	}
	got := side(p)
	sum := time.Duration(0)
	for _, took := range got.CPU {
		sum += took
	}
	if sum != whole || got.All != whole {
		t.Errorf("of %s the groups have %s, all %s", whole, sum, got.All)
	}
	was := got.CPU[groupTLS]
	if got.scale(0); got.CPU[groupTLS] != was || got.All != whole {
		t.Errorf("with an account of 0 TLS has %s of %s, want %s of %s", got.CPU[groupTLS], got.All, was, whole)
	}
	if got.scale(2 * whole); got.CPU[groupTLS] != 2*was || got.All != 2*whole {
		t.Errorf("with an account of twice the time TLS has %s of %s, want %s of %s", got.CPU[groupTLS], got.All, 2*was, 2*whole)
	}
	if top := got.Top[groupHTTP]; len(top) != 2 || !strings.HasPrefix(top[0], "runtime.memequal ") || !strings.HasPrefix(top[1], "textproto.CanonicalMIMEHeaderKey ") {
		t.Errorf("most of HTTP is %q", top)
	}
	if empty := side(nil); empty.All != 0 || len(empty.CPU) != 0 {
		t.Errorf("no profile is %+v", empty)
	}
}
