package checkin

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever is set, moved and removed, each entry fires once, at its tick and not
// before it, also when the machine has slept for several turns.
func TestTimerWheelFiresEachEntryOnceAtItsTick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &timerWheel{}
		want := map[*parkedConn]int32{}
		var conns []*parkedConn
		now := int32(0)
		step := rapid.OneOf(rapid.Int32Range(0, 3), rapid.Int32Range(0, 3*wheelSize))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				conns = append(conns, &parkedConn{})
				fallthrough
			case 1:
				if len(conns) == 0 {
					continue
				}
				s := rapid.SampledFrom(conns).Draw(t, "conn")
				at := now - 2 + step.Draw(t, "in")
				w.set(s, at)
				want[s] = max(at, now+1)
			case 2:
				if len(conns) == 0 {
					continue
				}
				s := rapid.SampledFrom(conns).Draw(t, "conn")
				w.remove(s)
				delete(want, s)
			case 3:
				now += step.Draw(t, "on")
				for _, s := range w.advance(now) {
					at, ok := want[s]
					if !ok || at > now {
						t.Fatalf("fired at %d, set for %d (%v)", now, at, ok)
					}
					delete(want, s)
				}
				for _, at := range want {
					if at <= now {
						t.Fatalf("at %d, what was set for %d has not fired", now, at)
					}
				}
			}
		}
	})
}
