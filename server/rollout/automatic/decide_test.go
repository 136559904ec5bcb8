package automatic_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/automatic"
)

var now = time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)

func requires(share ...any) (out []fleet.RequiredVersion) {
	for i := 0; i < len(share); i += 2 {
		out = append(out, fleet.RequiredVersion{Version: share[i].(string), Percentage: share[i+1].(float64)})
	}
	return out
}

// run returns n agents that run a version and accept every higher one.
func run(n int, version string, required []fleet.RequiredVersion, change func(*automatic.Member)) (out []automatic.Member) {
	for i := range n {
		m := automatic.Member{ID: fmt.Sprintf("%s-%02d", version, i), Version: version, Key: fleet.VersionKey(version)}
		for _, v := range required {
			m.Accepts = append(m.Accepts, fleet.VersionKey(v.Version) > m.Key)
		}
		if change != nil {
			change(&m)
		}
		out = append(out, m)
	}
	return out
}

func TestDecideUpgradesAShareOfTheLowestVersions(t *testing.T) {
	t.Parallel()
	failedLast := func(ago time.Duration, attempts int) func(*automatic.Member) {
		return func(m *automatic.Member) { m.Failed, m.Attempts, m.LastAttempt = "1.1.0", attempts, now.Add(-ago) }
	}
	one := requires("1.1.0", 30.0)
	for _, c := range []struct {
		what     string
		required []fleet.RequiredVersion
		members  [][]automatic.Member
		want     string
	}{
		{"three of ten", one, [][]automatic.Member{run(4, "1.0.0", one, nil), run(6, "0.9.0", one, nil)}, "1.1.0: 0.9.0-00 0.9.0-01 0.9.0-02"},
		{"versions, not texts", one, [][]automatic.Member{run(2, "0.10.0", one, nil), run(2, "0.9.0", one, nil)}, "1.1.0: 0.9.0-00"},
		{"the share is reached", one, [][]automatic.Member{run(3, "1.1.0", one, nil), run(7, "1.0.0", one, nil)}, ""},
		{"some are on their way", one, [][]automatic.Member{run(2, "0.9.0", one, func(m *automatic.Member) { m.Going = "1.1.0" }), run(8, "1.0.0", one, nil)}, "1.1.0: 1.0.0-00"},
		{"higher versions stay", one, [][]automatic.Member{run(9, "2.0.0", one, nil), run(1, "1.0.0", one, nil)}, "1.1.0: 1.0.0-00 short 2"},
		{"nobody is there", one, nil, ""},
		{"a failure holds its place", one, [][]automatic.Member{run(1, "0.9.0", one, failedLast(10*time.Minute, 1)), run(9, "1.0.0", one, nil)}, "1.1.0: 1.0.0-00 1.0.0-01"},
		{"a failure is tried again", one, [][]automatic.Member{run(1, "0.9.0", one, failedLast(30*time.Minute, 1)), run(9, "1.0.0", one, nil)}, "1.1.0: 0.9.0-00 1.0.0-00 1.0.0-01"},
		{"a second one later", one, [][]automatic.Member{run(3, "0.9.0", one, failedLast(59*time.Minute, 2)), run(7, "1.0.0", one, nil)}, "1.1.0:"},
		{"too many failures", one, [][]automatic.Member{run(3, "0.9.0", one, failedLast(999*time.Hour, 8)), run(7, "1.0.0", one, nil)}, "1.1.0:"},
		{
			"a version that failed on the host", one,
			[][]automatic.Member{run(3, "0.9.0", one, func(m *automatic.Member) { failedLast(999*time.Hour, 1)(m); m.Accepts[0] = false }), run(7, "1.0.0", one, nil)},
			"1.1.0:",
		},
		{
			"a failure at another version does not matter", one,
			[][]automatic.Member{run(3, "0.9.0", one, func(m *automatic.Member) { m.Failed = "1.0.5" }), run(7, "1.0.0", one, nil)},
			"1.1.0: 0.9.0-00 0.9.0-01 0.9.0-02",
		},
		{
			"two versions", requires("1.1.0", 50.0, "1.2.0", 50.0),
			[][]automatic.Member{run(3, "1.0.0", requires("1.1.0", 50.0, "1.2.0", 50.0), nil)},
			"1.1.0: 1.0.0-00; 1.2.0: 1.0.0-01 1.0.0-02",
		},
		{
			"a version keeps its share", requires("1.1.0", 50.0, "1.2.0", 50.0),
			[][]automatic.Member{run(4, "1.1.0", requires("1.1.0", 50.0, "1.2.0", 50.0), nil)},
			"1.2.0: 1.1.0-00 1.1.0-01",
		},
	} {
		var got []string
		for _, u := range automatic.Decide(c.required, slices.Concat(c.members...), now) {
			text := strings.TrimRight(u.Version+": "+strings.Join(u.Agents, " "), " ")
			if u.Short > 0 {
				text += fmt.Sprint(" short ", u.Short)
			}
			got = append(got, text)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: decided %q, want %q", c.what, strings.Join(got, "; "), c.want)
		}
	}
}

// Whatever the fleet: nobody is chosen twice or against its own rules, no version gets more
// than its share, and once every upgrade has succeeded there is nothing left to decide.
func TestDecideEndsAtTheShares(t *testing.T) {
	t.Parallel()
	versions := []string{"0.9.0", "1.0.0", "1.1.0", "1.2.0", "2.0.0"}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		first := float64(r.IntN(60) + 1)
		required := requires("1.1.0", first, "1.2.0", float64(r.IntN(int(100-first))+1))
		var members []automatic.Member
		for _, v := range versions {
			members = append(members, run(r.IntN(12), v, required, func(m *automatic.Member) {
				switch r.IntN(6) {
				case 0:
					m.Failed, m.Attempts, m.LastAttempt = required[r.IntN(2)].Version, r.IntN(9), now.Add(-time.Duration(r.IntN(30))*time.Hour)
				case 1:
					m.Accepts[r.IntN(2)] = false
				}
			})...)
		}
		byID := map[string]*automatic.Member{}
		for i := range members {
			byID[members[i].ID] = &members[i]
		}
		for round := 0; ; round++ {
			if round > 20 {
				t.Fatalf("seed %d: still decides after %d rounds", seed, round)
			}
			decided := automatic.Decide(required, members, now)
			seen, moved := map[string]bool{}, map[string]bool{}
			for _, u := range decided {
				i := slices.IndexFunc(required, func(v fleet.RequiredVersion) bool { return v.Version == u.Version })
				for _, id := range u.Agents {
					if m := byID[id]; seen[id] || !m.Accepts[i] || m.Going != "" {
						t.Fatalf("seed %d: %s is not to go to %s: %+v", seed, id, u.Version, m)
					}
					seen[id] = true
				}
			}
			for _, u := range decided {
				for _, id := range u.Agents {
					m := byID[id]
					m.Version, m.Key, m.Failed, moved[u.Version] = u.Version, fleet.VersionKey(u.Version), "", true
					for i, v := range required {
						m.Accepts[i] = m.Accepts[i] && fleet.VersionKey(v.Version) > m.Key
					}
				}
			}
			if len(moved) == 0 {
				break
			}
			for _, v := range required {
				n := 0
				for _, m := range members {
					if m.Version == v.Version {
						n++
					}
				}
				if limit := float64(len(members))*v.Percentage/100 + 1; moved[v.Version] && float64(n) > limit {
					t.Fatalf("seed %d: %d of %d run %s, want at most %v", seed, n, len(members), v.Version, limit)
				}
			}
		}
	}
}
