package main

import (
	"context"
	_ "embed" // the source that is added to the programs
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/spf13/cobra/doc" // so that documents.go.txt finds it in this module
)

//go:embed documents.go.txt
var documentsSource string

// commands are the programs with commands: their packages, and how these get the root command.
var commands = []struct{ name, dir, root, imports string }{
	{"muster", "server", "cli.New(version)", `import "github.com/muster-fleet/muster/server/cli"`},
	{"muster-agent", "agent", "newCommand()", ""},
}

// documents writes the pages of the manual and the completions of shells.
func (r *release) documents(ctx context.Context) error {
	for _, c := range commands {
		source := strings.Replace(documentsSource, "ROOT", c.root, 1)
		source = strings.Replace(source, "package main\n", "package main\n\n"+c.imports+"\n", 1)
		added, overlay := filepath.Join(r.work, c.name+"-documents.go"), filepath.Join(r.work, c.name+"-overlay.json")
		if err := os.WriteFile(added, []byte(source), 0o644); err != nil {
			return err
		}
		text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(r.Root, c.dir, "documents.go"): added}})
		if err != nil {
			return err
		}
		if err := os.WriteFile(overlay, text, 0o644); err != nil {
			return err
		}
		// In this module, which has the writer of pages among its dependencies.
		module := filepath.Join(r.Root, "packaging", "release")
		if _, err := goTool(ctx, module, nil, "run", "-tags", tags, "-overlay", overlay, "-ldflags", "-X main.version="+r.Version,
			"github.com/muster-fleet/muster/"+c.dir, r.documentsOf(c.name), strconv.FormatInt(r.Time.Unix(), 10)); err != nil {
			return err
		}
	}
	return nil
}

// documentsOf returns the folder with the documents of a program: man with the pages, and beside
// it a completion for each shell.
func (r *release) documentsOf(program string) string {
	return filepath.Join(r.work, "documents", program)
}
