package main

import (
	"strings"

	"github.com/muster-fleet/muster/server/app"
)

// exampleConfig returns the configuration of a new installation: every key is explained, and none
// is set, so that defaults of later versions take effect.
func exampleConfig() string {
	var out strings.Builder
	for line := range strings.Lines(app.Example) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "#") {
			out.WriteString("#")
		}
		out.WriteString(line)
	}
	return out.String()
}
