package doctor

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/server/agents/limit"
)

func TestOpenFilesOfTheService(t *testing.T) {
	machine := limit.Machine{Cores: 8, Memory: 32 << 30}
	for name, c := range map[string]struct {
		allowed int
		limits  limit.Config
		level   doctor.Level
		words   string
	}{
		"the unit's own":                {1 << 20, limit.Config{}, doctor.OK, "may open 1048576 files"},
		"the usual one of a shell":      {1024, limit.Config{}, doctor.Warning, "LimitNOFILE=1048576"},
		"less than the configuration's": {20_000, limit.Config{MaxAgents: 100_000}, doctor.Problem, "limits.max_agents"},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFiles(c.allowed, machine, c.limits)
			if f.Level != c.level || !strings.Contains(f.Found+f.Mend, c.words) {
				t.Errorf("found %+v, want %s with %q", f, c.level, c.words)
			}
		})
	}
}
