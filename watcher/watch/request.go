package watch

import (
	"fmt"
	"strings"

	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// requested returns the reason of a rollback somebody asked for, or nil. The
// request stays until the marker goes, so that a watcher killed in between finds
// it again. It is refused, once, where there is nothing to go back to: a version
// that may be good is not given up for one that cannot start.
func (w *Watch) requested(m handoff.Marker) *handoff.Reason {
	r, err := handoff.ReadRequest(w.Disk, w.Top)
	if r == nil {
		if err != nil {
			w.refuse("damaged", "the request to go back cannot be read and counts as none", "error", err)
		}
		return nil
	}
	if r.ToHome != m.To.Home {
		w.refuse(r.ToHome, "a request to go back is about another upgrade and is left alone", "home", r.ToHome)
		return nil
	}
	if has, err := w.has(opPointer, layout.AgentLink, m.From.Home); err == nil && !has {
		w.refuse(r.ToHome, "a request to go back is refused: the program of the version before is missing", "home", m.From.Home)
		return nil
	}
	text := strings.TrimSpace(r.Why)
	switch {
	case text == "":
		text = fmt.Sprintf("It was asked on the host to go back from %s to %s.", m.To, m.From)
	case len(text) > maxWhy:
		text = strings.ToValidUTF8(text[:maxWhy], "") + "…"
	}
	return &handoff.Reason{Code: handoff.ReasonManual, Text: text}
}

// maxWhy bounds the words of whoever asked: they go to the server and stay there.
const maxWhy = 1000

// refuse says once why a request is not followed: it is looked for every second.
func (w *Watch) refuse(what, message string, args ...any) {
	if w.refused == what {
		return
	}
	w.refused = what
	w.Log.Warn(message, args...) //nolint:sloglint // each caller's message is constant
}
