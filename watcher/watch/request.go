package watch

import (
	"fmt"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// requested returns the reason of a requested rollback, or nil. The request stays until the
// marker is removed, so that a watcher started after a crash finds it. A request is refused
// if the previous version's program is missing.
func (w *Watch) requested(m handoff.Marker) *handoff.Reason {
	r, err := handoff.ReadRequest(w.Disk, w.Top)
	if r == nil {
		if err != nil {
			w.refuse("damaged", "the rollback request cannot be read and is ignored", "error", err)
		}
		return nil
	}
	if r.ToHome != m.To.Home {
		w.refuse(r.ToHome, "a rollback request is about another upgrade and is ignored", "home", r.ToHome)
		return nil
	}
	if has, err := w.has(opPointer, layout.AgentLink, m.From.Home); err == nil && !has {
		w.refuse(r.ToHome, "a rollback request is refused: the program of the previous version is missing", "home", m.From.Home)
		return nil
	}
	text := strings.TrimSpace(r.Why)
	switch {
	case text == "":
		text = fmt.Sprintf("A rollback from %s to %s was requested on the host.", m.To, m.From)
	case len(text) > maxWhy:
		text = strings.ToValidUTF8(text[:maxWhy], "") + "…"
	}
	return &handoff.Reason{Code: handoff.ReasonManual, Text: text}
}

// maxWhy bounds a request's text in bytes, since the server stores it.
const maxWhy = 1000

// refuse logs why a request is refused. It logs each cause once, since the request is read
// every second.
func (w *Watch) refuse(what, message string, args ...any) {
	if w.refused == what {
		return
	}
	w.refused = what
	w.Log.Warn(message, args...) //nolint:sloglint // each caller's message is constant
}
