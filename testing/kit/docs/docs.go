// Package docs reads the commands of the documentation in ui/docs, so that a test can run them on
// a machine: packaging/release/realroot does. A page's blocks of the language sh are run, in the
// order of the pages, with what earlier blocks have left. A block of the language console is not
// run; the line before it has the reason, as <!-- not run: REASON -->.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Pages are the pages with commands, in the order in which these are run. One machine runs all.
var Pages = []string{
	"start.md", "host.md", "rollouts.md", "fleets.md", "gitops.md", "components.md", "elsewhere.md", "images.md", "secure.md", "container.md", "troubleshoot.md", "monitoring.md", "operate.md",
}

// Block is a block of commands.
type Block struct {
	// Page and Line are where it begins.
	Page string
	Line int
	// Commands are its lines.
	Commands string
	// NotRun is why it is not run; empty if it is.
	NotRun string
}

// Read returns the blocks of a page in a folder.
func Read(folder, page string) ([]Block, error) {
	text, err := os.ReadFile(filepath.Join(folder, page))
	if err != nil {
		return nil, err
	}
	return parse(page, string(text))
}

func parse(page, text string) (blocks []Block, err error) {
	var (
		open    *Block
		inOther bool
		reason  string
		number  int
	)
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && inOther:
			inOther = false
		case fence && open != nil:
			blocks = append(blocks, *open)
			open = nil
		case fence && language == "sh":
			open = &Block{Page: page, Line: number}
		case fence && language == "console":
			if reason == "" {
				return nil, fmt.Errorf("%s:%d: a block of the language console is not run: write the reason on the line before it, as <!-- not run: REASON -->", page, number)
			}
			open = &Block{Page: page, Line: number, NotRun: reason}
		case fence && (language == "text" || language == "yaml"):
			inOther = true
		case fence:
			return nil, fmt.Errorf("%s:%d: the language of a block is sh (run), console (not run), text or yaml, not %q", page, number, language)
		case open != nil:
			open.Commands += line + "\n"
		}
		reason = ""
		if comment, ok := strings.CutPrefix(line, "<!-- not run: "); ok && !inOther {
			reason = strings.TrimSuffix(comment, " -->")
		}
	}
	if open != nil || inOther {
		return nil, fmt.Errorf("%s: the last block has no end", page)
	}
	return blocks, nil
}
