//go:build linux

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/simfleet"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

const (
	consoleHosts = 100_000
	// Live hosts share the machine with the browser, so pages are measured with few of them.
	fewLive, manyLive = 240, 10_000
)

// consoleGoals are the goals of the 95th percentile, by how the name of a figure begins.
var consoleGoals = []struct{ prefix, goal string }{
	{"first row: ", "≤ 300 ms"},
	{"shown: ", "≤ 100 ms"},
	{"input ", "≤ 100 ms"},
	{"long tasks ", "≤ 100 ms"},
}

// BenchmarkConsole measures the web UI in Chromium, with a server that has 100,000 hosts, of
// which 10,000 are upgraded while a page is watched. Browser, server and hosts share this machine.
func BenchmarkConsole(b *testing.B) {
	root, err := toolchain.Root()
	if err != nil {
		b.Fatal(err)
	}
	if err := toolchain.BuildUI(b.Context(), root, b.Output()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var figures []consoleFigure
		var seeded time.Duration
		for _, part := range []struct {
			spec string
			live int
		}{{"pages", fewLive}, {"live", manyLive}} {
			of, took, err := measureConsole(b, root, part.spec, part.live)
			if err != nil {
				b.Fatal(err)
			}
			figures, seeded = append(figures, of...), max(seeded, took)
		}
		if err := reportConsole(b, figures, seeded); err != nil {
			b.Fatal(err)
		}
	}
}

// consoleFigure is a figure of the browser, in milliseconds.
type consoleFigure struct {
	Name string    `json:"name"`
	MS   []float64 `json:"ms"`
}

// measureConsole runs one spec with a fleet of its own. It returns also how long it took to make
// the fleet.
func measureConsole(b *testing.B, root, spec string, live int) (figures []consoleFigure, seeded time.Duration, err error) {
	b.Helper()
	began := time.Now()
	f, err := simfleet.Start(b.Context(), simfleet.Options{Hosts: consoleHosts, Live: live, Unattended: true, Dir: b.TempDir(), Out: b.Output()})
	if err != nil {
		return nil, 0, err
	}
	seeded = time.Since(began)
	file := filepath.Join(b.TempDir(), "figures.json")
	err = toolchain.Run(b.Context(), b.Output(), filepath.Join(root, "ui"), []string{"MUSTER_UI_LOGIN=" + f.LoginURL, "MUSTER_UI_FIGURES=" + file},
		"npx", "playwright", "test", "--config", "test/speed/playwright.config.ts", "--reporter=list", spec+".spec.ts")
	if err = errors.Join(err, f.Stop()); err != nil {
		return nil, 0, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	return figures, seeded, json.Unmarshal(text, &figures)
}

// reportConsole prints the browser's figures and writes them to CONSOLE.md.
func reportConsole(b *testing.B, figures []consoleFigure, seeded time.Duration) error {
	b.Helper()
	var out bytes.Buffer
	fmt.Fprintf(&out, consoleHead, thisMachine(), consoleHosts, manyLive, seeded.Round(time.Second))
	for _, f := range figures {
		var all []time.Duration
		for _, ms := range f.MS {
			all = append(all, time.Duration(ms*float64(time.Millisecond)))
		}
		goal := ""
		for _, g := range consoleGoals {
			if strings.HasPrefix(f.Name, g.prefix) {
				goal = g.goal
			}
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %d | %s |\n", f.Name, spell(percentile(all, 50)), spell(percentile(all, 95)), spell(percentile(all, 100)), len(all), goal)
	}
	b.Logf("\n%s", &out)
	return os.WriteFile("CONSOLE.md", out.Bytes(), 0o644)
}

const consoleHead = `# How fast the web UI is

In Debian's Chromium, on %s. Server, browser and simulated hosts share its processors. The server has %d hosts on the
embedded store, and for the last figures %d of them are agents that speak the protocol; a fleet is made in %s at most. Written by
` + "`go tool mage bench`" + `, or alone by ` + "`go test -tags nomsgpack -run '^$' -bench Console -benchtime 1x -timeout 30m ./testing/suites/bench`" + `.

- **first row** is the time from the start of a navigation, with scripts and fonts in the browser's cache, to the frame with the element.
- **shown** is the time from an input to the frame with its result, the server's answer included.
- **input → next paint** is the browser's Event Timing, in steps of 8 ms.
- **hosts found in the palette** waits for a pause of 150 ms in typing before it asks.
- **long tasks** block the page for 50 ms or more; each page is watched for 20 s in which all live hosts get a tag, beside the upgrades of the rollouts. 0 ms: there was none.

Not reached on two cores: the first row of the agents, of the activity and of the board, an order by another column, and the
longest task of the agents' page. The parts of the agents' first row show the bound: scripts, the server's answer and the drawing of
fifty rows follow each other, and each is processor time. The preview of an upgrade of the whole fleet reads each host's
document and judges it as the order would, a twelfth of a millisecond of processor time for each on this machine.

| figure | median | p95 | worst | measured | goal (p95) |
|---|---|---|---|---|---|
`
