package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
)

const (
	// keepAlive is how often a silent stream gets a comment line: below the
	// 30 s after which common proxies close an idle connection.
	keepAlive = 15 * time.Second
	// streamWrite bounds the write of one batch to one reader. A slower reader is
	// disconnected and resumes.
	streamWrite = 10 * time.Second
)

// events serves the event stream until the reader disconnects, or until its login ends,
// which is checked every keepAlive.
func (h *Handlers) events(c *gin.Context) error {
	after, err := resumeAt(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Request.Context())
	defer cancel()
	go func() {
		select {
		case <-h.Draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	reader, err := h.Events.Reader(ctx, after)
	gone := errors.Is(err, event.ErrGone)
	if err != nil && !gone {
		return err
	}
	c.Header("Content-Type", "text/event-stream")
	c.Header("X-Accel-Buffering", "no")
	c.Status(http.StatusOK)
	out := http.NewResponseController(c.Writer)
	send := func(text string) error {
		_ = out.SetWriteDeadline(time.Now().Add(streamWrite))
		// Over HTTP/2 a deadline ends the stream even while nothing is written.
		defer func() { _ = out.SetWriteDeadline(time.Time{}) }()
		if _, err := c.Writer.WriteString(text); err != nil {
			return err
		}
		return out.Flush()
	}
	hello := ": muster\nretry: 1000\n\n"
	if gone {
		hello += "event: reset\ndata: {}\n\n"
	}
	checked := h.Now.UTC()
	for err = send(hello); err == nil; {
		if now := h.Now.UTC(); now.Sub(checked) >= keepAlive {
			if h.Access.Ended(ctx, callersKey(c), c.GetTime(expiresKey)) {
				return nil // the reader reconnects, and is refused
			}
			checked = now
		}
		wait, stop := context.WithTimeout(ctx, keepAlive)
		var events []fleet.Event
		events, err = reader.Next(wait)
		stop()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			err = send(": still here\n\n")
		case err != nil:
			return nil // the store is unavailable: the reader reconnects and resumes
		default:
			err = send(h.frames(ctx, events))
		}
	}
	return nil
}

func resumeAt(c *gin.Context) (*int64, error) {
	// The header has precedence: a browser that reconnects sends it with its original
	// query.
	for _, from := range []struct{ field, s string }{{"header.Last-Event-ID", c.GetHeader("Last-Event-ID")}, {"query.after", c.Query("after")}} {
		if from.s == "" {
			continue
		}
		n, err := strconv.ParseInt(from.s, 10, 64)
		if err != nil || n < 0 {
			return nil, fleet.FieldError(from.field, "is %q, want the id of an event", from.s)
		}
		return &n, nil
	}
	return nil, nil
}

// frames encodes events. Events about agents carry the current agent, so that readers need
// not request each.
func (h *Handlers) frames(ctx context.Context, events []fleet.Event) string {
	var ids []string
	seen := map[string]bool{}
	for _, e := range events {
		if strings.HasPrefix(e.Type, "agent.") && e.Subject != "" && !seen[e.Subject] {
			seen[e.Subject] = true
			ids = append(ids, e.Subject)
		}
	}
	agents := map[string]adminapi.Agent{}
	if len(ids) > 0 {
		found, err := h.Inventory.Many(ctx, ids)
		timeouts, terr := h.Policies.Timeouts(ctx)
		if err == nil && terr == nil { // otherwise readers request all
			var room listed
			for i := range found {
				if room.take(&found[i]) { // otherwise readers request it
					agents[found[i].ID] = renderAgent(&found[i], timeouts, h.Now.UTC())
				}
			}
		}
	}
	var b strings.Builder
	for _, e := range events {
		out := adminapi.Event{Seq: e.Seq, At: e.At, Type: e.Type, Subject: e.Subject, Actor: ptr(e.Actor)}
		data := map[string]any{}
		if len(e.Data) > 0 {
			_ = json.Unmarshal(e.Data, &data) // always valid: the server wrote it
		}
		if a, ok := agents[e.Subject]; ok {
			data["agent"] = a
		}
		if len(data) > 0 {
			out.Data = &data
		}
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Type, event.Data(out))
	}
	return b.String()
}
