//go:build release && linux

package elsewhere

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/docker"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// tenMinutes is how long a person may need to decide.
const tenMinutes = 10 * time.Minute

// A platform engineer tries Muster with ten hosts: one under OpenRC and one under System V init, four
// containers, and four agents of users without root, who run the line that the server prints for their
// platform. One under OpenRC, one in a container and one without root are upgraded, and the others keep
// their version.
func TestTenHostsOfThreeKindsWithinTenMinutes(t *testing.T) {
	nspawn.Require(t, nspawn.OpenRC)
	nspawn.Require(t, nspawn.SystemV)
	require.Program(t, "curl")
	engine := docker.Shared(t)
	began := time.Now()
	w := newWorld(t)

	var names []string
	for _, i := range []initSystem{withOpenRC, withSysV} {
		w.initMachine(i).install()
		names = append(names, i.name)
	}
	image := w.image(engine, w.Archives["1.0.0"])
	for i := range 4 {
		b, volume := w.box(engine, image), filepath.Join(w.Dir, fmt.Sprintf("volume%d", i))
		w.ok("make a volume", os.Mkdir(volume, 0o755))
		names = append(names, fmt.Sprintf("box%d", i))
		b.run(names[len(names)-1], volume, w.enrollment()...)
		w.online(names[len(names)-1], "1.0.0")
		b.configure()
	}
	home, line := w.homeOfNobody(), w.line()
	for i := range 4 {
		names = append(names, fmt.Sprintf("user%d", i))
		top := filepath.Join(home, names[len(names)-1])
		c := asNobody(t, "sh", "-c", line+" --no-service --top "+top)
		c.Dir = home
		out, err := c.CombinedOutput()
		w.ok(line+": "+string(out), err)
		w.runAsNobody(top, names[len(names)-1])
	}
	hosts := map[string]*harness.Host{}
	for _, name := range names {
		hosts[name] = w.online(name, "1.0.0")
	}
	if len(hosts) != 10 {
		t.Errorf("the hosts are %q, want ten", names)
	}

	w.Publish("1.1.0", w.Programs.Agent)
	upgraded := []string{withOpenRC.name, "box0", "user0"}
	for _, name := range upgraded {
		w.Upgrade("1.1.0", hosts[name])
	}
	for _, name := range upgraded {
		w.upgraded(hosts[name], "1.1.0")
	}
	agents, err := w.Server.Agents(t.Context())
	w.ok("list the agents", err)
	versions := map[string]int{}
	for _, a := range agents {
		if a.Status == fleet.StatusOnline {
			versions[a.Agent.Version]++
		} else {
			t.Errorf("%s is %s", harness.Hostname(a), a.Status)
		}
	}
	if versions["1.0.0"] != 7 || versions["1.1.0"] != 3 {
		t.Errorf("the hosts run %v, want seven with 1.0.0 and three with 1.1.0", versions)
	}
	if took := time.Since(began); took > tenMinutes {
		t.Errorf("it took %s", took)
	} else {
		t.Logf("from nothing to ten hosts, three of them upgraded: %s", took.Round(time.Second))
	}
}

// line returns the line that installs and enrols a host of this platform, as a person sees it in a
// terminal: with the token itself.
func (w *world) line() string {
	w.Helper()
	line, err := w.Server.EnrollmentLine(w.Context())
	w.ok("create a key", err)
	file := fromFile.FindStringSubmatch(line)
	if file == nil {
		w.Fatalf("the line reads no token: %s", line)
	}
	token, err := os.ReadFile(file[1])
	w.ok("read the token", err)
	return strings.ReplaceAll(line, file[0], strings.TrimSpace(string(token)))
}

// fromFile is how a line reads the token from a file.
var fromFile = regexp.MustCompile(`\$\(cat ([^)]*)\)`)
