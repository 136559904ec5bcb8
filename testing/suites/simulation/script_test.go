package simulation

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/require"
)

var update = flag.Bool("update", false, "write the actual output into the scripts")

// command is one command of a script: a line, optional lines of input, and the expected
// output.
//
//	# a comment
//	create spring
//	version: 2.0.0
//	----
//	made spring
//
// An empty line ends the output.
type command struct {
	line    int
	comment string // lines before it, verbatim
	words   []string
	text    string // the first line
	input   string
	want    string
}

func readScript(text string) ([]command, string, error) {
	var out []command
	lines := strings.Split(text, "\n")
	comment := ""
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			comment += lines[i] + "\n"
			continue
		}
		c := command{line: i + 1, comment: comment, text: lines[i], words: strings.Fields(lines[i])}
		comment = ""
		for i++; i < len(lines) && lines[i] != "----"; i++ {
			c.input += lines[i] + "\n"
		}
		if i == len(lines) {
			return nil, "", fmt.Errorf("line %d: %q has no ---- after it", c.line, c.text)
		}
		for i++; i < len(lines) && lines[i] != ""; i++ {
			c.want += lines[i] + "\n"
		}
		out = append(out, c)
	}
	return out, comment, nil
}

// TestScripts runs the scenarios of testdata. With -update it rewrites their output.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, file := range files {
		if file == largeFleet {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			runScript(t, file)
		})
	}
}

// largeFleet is the script of a fleet of ten thousand hosts, which takes as long as all others.
const largeFleet = "testdata/large.txt"

// The other scripts have ten hosts or so, in which a race shows as well: this one runs apart.
func TestLargeFleet(t *testing.T) {
	require.Time(t, "simulates a large fleet")
	runScript(t, largeFleet)
}

func runScript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	commands, end, err := readScript(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var written strings.Builder
	simulate(t, func(t *testing.T, sim *simulation) {
		for _, c := range commands {
			got := sim.run(c)
			if !*update && got != c.want {
				t.Fatalf("%s:%d: %s\ngot\n%s\nwant\n%s", file, c.line, c.text, got, c.want)
			}
			fmt.Fprintf(&written, "%s%s\n%s----\n%s\n", c.comment, c.text, c.input, got)
		}
	})
	written.WriteString(strings.TrimPrefix(end, "\n"))
	if *update && written.String() != string(text) {
		if err := os.WriteFile(file, []byte(written.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
