package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// configuration writes the configuration of a new installation, as the server prints it.
func (r *release) configuration(ctx context.Context) error {
	text, err := goTool(ctx, r.Root, nil, "run", "-tags", tags, "./server", "server", "--example-config")
	if err != nil {
		return err
	}
	return os.WriteFile(r.configFile(), []byte(unset(text)), 0o644)
}

func (r *release) configFile() string { return filepath.Join(r.work, "server.yml") }

// unset makes all keys of a configuration comments, so that defaults of later versions take effect.
func unset(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if s := strings.TrimSpace(line); s != "" && !strings.HasPrefix(s, "#") {
			out.WriteString("#")
		}
		out.WriteString(line)
	}
	return out.String()
}
