package admin

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/store"
)

// Rollouts and what belongs to them are encoded from the types of package fleet, without a
// copy: a preview may have 10,000 targets. A test checks that their JSON is that of
// adminapi's types.

// item is a response with one item.
type item[T any] struct {
	Item T `json:"item"`
}

// list is a response with a whole list.
type list[T any] struct {
	Items []T `json:"items"`
}

// paged is a response with a page of a list.
type paged[T any] struct {
	Items   []T `json:"items"`
	Total   int `json:"total"`
	Page    int `json:"page"`
	PerPage int `json:"perPage"`
}

// orEmpty replaces a nil list, which JSON would encode as null.
func orEmpty[T any](in []T) []T {
	if in == nil {
		return []T{}
	}
	return in
}

// answer sends v, or returns err.
func answer[T any](c *gin.Context, v T, err error) error {
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, item[T]{v})
	return nil
}

// answerPage sends the requested page of a list, which get reads.
func answerPage[T any](c *gin.Context, get func(offset, limit int) ([]T, int, error)) error {
	number, size, err := page(c, 1)
	if err != nil {
		return err
	}
	values, total, err := get((number-1)*size, size)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, paged[T]{orEmpty(values), total, number, size})
	return nil
}

// maxWhy bounds a reason, as package rollout does: a paragraph, not a log.
const maxWhy = 2 << 10

// requestOf returns who sends a command, and why.
func requestOf(c *gin.Context, why string) (rollout.Request, error) {
	if len(why) > maxWhy {
		return rollout.Request{}, fleet.FieldError("body.why", "has %d bytes, want at most %d", len(why), maxWhy)
	}
	return rollout.Request{Actor: actor(c), Why: strings.TrimSpace(why)}, nil
}

// whyBody is the part of a body with the reason.
type whyBody struct {
	Why string `json:"why"`
}

func (b *whyBody) reason() string { return b.Why }

// runCommand decodes the body of a command, runs it for the authenticated actor, and sends
// the result.
func runCommand[T any](c *gin.Context, decode func(*gin.Context, any) error, req interface{ reason() string }, do func(rollout.Request) (T, error)) error {
	if err := decode(c, req); err != nil {
		return err
	}
	w, err := requestOf(c, req.reason())
	if err != nil {
		return err
	}
	v, err := do(w)
	return answer(c, v, err)
}

func rolloutID(c *gin.Context) string { return c.Param("rolloutId") }

func (h *Handlers) listRollouts(c *gin.Context) error {
	return answerPage(c, func(offset, limit int) ([]fleet.Rollout, int, error) {
		rollouts, total, err := h.Rollouts.List(c.Request.Context(), offset, limit)
		for i := range rollouts {
			rollouts[i].Batches = nil // a thousand batches may have 300 KB
		}
		return rollouts, total, err
	})
}

func (h *Handlers) createRollout(c *gin.Context) error {
	var req struct {
		whyBody
		Plan     fleet.Plan `json:"plan"`
		TakeOver string     `json:"take_over"`
	}
	return runCommand(c, decode, &req, func(w rollout.Request) (fleet.Rollout, error) {
		w.TakeOver = req.TakeOver
		return h.Rollouts.Create(c.Request.Context(), req.Plan, w)
	})
}

func (h *Handlers) getRollout(c *gin.Context) error {
	r, err := h.Rollouts.Get(c.Request.Context(), rolloutID(c))
	return answer(c, r, err)
}

func (h *Handlers) deleteRollout(c *gin.Context) error {
	w, err := requestOf(c, c.Query("why"))
	if err != nil {
		return err
	}
	if err := h.Rollouts.Delete(c.Request.Context(), rolloutID(c), w); err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.ActionWord{Action: "deleted"})
	return nil
}

func (h *Handlers) previewRollout(c *gin.Context) error {
	p, err := h.Rollouts.Preview(c.Request.Context(), rolloutID(c))
	return answer(c, withLists(p), err)
}

func (h *Handlers) getRolloutPreview(c *gin.Context) error {
	p, err := h.storedPreview(c)
	return answer(c, withLists(p), err)
}

// storedPreview returns the preview that the request names.
func (h *Handlers) storedPreview(c *gin.Context) (fleet.Preview, error) {
	p, err := h.Rollouts.GetPreview(c.Request.Context(), c.Param("hash"))
	if err == nil && p.RolloutID != rolloutID(c) {
		err = fleet.Errorf(fleet.NotFound, "preview %s is not of rollout %s", p.Hash, rolloutID(c))
	}
	return p, err
}

func (h *Handlers) dryRunRollout(c *gin.Context) error {
	var req struct {
		Plan fleet.Plan `json:"plan"`
	}
	if err := decode(c, &req); err != nil {
		return err
	}
	p, err := h.Rollouts.DryRun(c.Request.Context(), req.Plan)
	return answer(c, withLists(p), err)
}

// withLists replaces the nil lists of a preview by empty ones.
func withLists(p fleet.Preview) fleet.Preview {
	p.Targets, p.Skipped, p.Batches = orEmpty(p.Targets), orEmpty(p.Skipped), orEmpty(p.Batches)
	p.Sites, p.Warnings = orEmpty(p.Sites), orEmpty(p.Warnings)
	if p.Coverage != nil {
		cover := *p.Coverage
		cover.Over, cover.Uncovered = orEmpty(cover.Over), orEmpty(cover.Uncovered)
		p.Coverage = &cover
	}
	return p
}

// driftRefusal is adminapi.DriftRefusal with the domain's drift.
type driftRefusal struct {
	StatusCode int         `json:"statusCode"`
	Error      string      `json:"error"`
	Message    string      `json:"message"`
	Drift      fleet.Drift `json:"drift"`
	Hash       string      `json:"hash"`
	Targets    int         `json:"targets"`
}

func (h *Handlers) startRollout(c *gin.Context) error {
	var req struct {
		whyBody
		Hash        string `json:"hash"`
		AcceptDrift bool   `json:"accept_drift"`
		TakeOver    string `json:"take_over"`
	}
	err := runCommand(c, decode, &req, func(w rollout.Request) (fleet.Rollout, error) {
		w.TakeOver = req.TakeOver
		return h.Rollouts.Start(c.Request.Context(), rolloutID(c), req.Hash, req.AcceptDrift, w)
	})
	var drift *rollout.DriftError
	if errors.As(err, &drift) {
		d := drift.Drift
		d.Added, d.Removed, d.Changed = orEmpty(d.Added), orEmpty(d.Removed), orEmpty(d.Changed)
		c.AbortWithStatusJSON(http.StatusConflict, driftRefusal{
			http.StatusConflict, http.StatusText(http.StatusConflict), drift.Error(), d, drift.Now.Hash, len(drift.Now.Targets),
		})
		return nil
	}
	return err
}

func (h *Handlers) pauseRollout(c *gin.Context) error {
	var req struct {
		whyBody
		Now bool `json:"now"`
	}
	return runCommand(c, decodeOptional, &req, func(w rollout.Request) (fleet.Rollout, error) {
		return h.Rollouts.Pause(c.Request.Context(), rolloutID(c), req.Now, w)
	})
}

// command returns a handler for a command that takes only a reason.
func (h *Handlers) command(do func(s *rollout.Service, ctx context.Context, id string, w rollout.Request) (fleet.Rollout, error)) gin.HandlerFunc {
	return h.API.Handle(func(c *gin.Context) error {
		return runCommand(c, decodeOptional, &whyBody{}, func(w rollout.Request) (fleet.Rollout, error) {
			return do(h.Rollouts, c.Request.Context(), rolloutID(c), w)
		})
	})
}

// targetsRequest is the body of a command on some targets.
type targetsRequest struct {
	whyBody
	Agents []string `json:"agents"`
}

func (h *Handlers) retryTargets(c *gin.Context) error {
	var req targetsRequest
	return runCommand(c, decodeOptional, &req, func(w rollout.Request) (fleet.Rollout, error) {
		return h.Rollouts.Retry(c.Request.Context(), rolloutID(c), req.Agents, w)
	})
}

func (h *Handlers) retryTarget(c *gin.Context) error {
	return runCommand(c, decodeOptional, &whyBody{}, func(w rollout.Request) (fleet.Rollout, error) {
		return h.Rollouts.Retry(c.Request.Context(), rolloutID(c), []string{c.Param("agentId")}, w)
	})
}

func (h *Handlers) skipTargets(c *gin.Context) error {
	var req targetsRequest
	return runCommand(c, decode, &req, func(w rollout.Request) (fleet.Rollout, error) {
		return h.Rollouts.Skip(c.Request.Context(), rolloutID(c), req.Agents, w)
	})
}

func (h *Handlers) rollbackRollout(c *gin.Context) error {
	var req struct {
		whyBody
		Scope    rollout.Scope `json:"scope"`
		TakeOver string        `json:"take_over"`
	}
	return runCommand(c, decode, &req, func(w rollout.Request) (fleet.Rollout, error) {
		w.TakeOver = req.TakeOver
		return h.Rollouts.Rollback(c.Request.Context(), rolloutID(c), req.Scope, w)
	})
}

func (h *Handlers) listTargets(c *gin.Context) error {
	q := store.TargetQuery{RolloutID: rolloutID(c)}
	for _, words := range c.QueryArray("state") {
		for _, name := range strings.Split(words, ",") {
			state := fleet.TargetState(strings.TrimSpace(name))
			if (&fleet.Counts{}).Of(state) == nil {
				return fleet.FieldError("query.state", "is %q, which is not the state of a target", name)
			}
			q.States = append(q.States, state)
		}
	}
	if s := c.Query("batch"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fleet.FieldError("query.batch", "is %q, want the index of a batch, from 0", s)
		}
		q.Batch = &n
	}
	return answerPage(c, func(offset, limit int) ([]fleet.Target, int, error) {
		q.Offset, q.Limit = offset, limit
		return h.Rollouts.ListTargets(c.Request.Context(), q)
	})
}

func (h *Handlers) listAudit(c *gin.Context) error {
	return answerPage(c, func(offset, limit int) ([]fleet.AuditEntry, int, error) {
		return h.Rollouts.Trail(c.Request.Context(), rolloutID(c), offset, limit)
	})
}

func (h *Handlers) explainAgent(c *gin.Context) error {
	var at time.Time
	if s := c.Query("at"); s != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, s); err != nil {
			return fleet.FieldError("query.at", "is %q, want a time such as 2026-01-31T12:00:00Z", s)
		}
	}
	e, err := h.Rollouts.Why(c.Request.Context(), c.Param("agentId"), c.Query("component"), c.Query("rollout"), at)
	e.Chain = orEmpty(e.Chain)
	return answer(c, e, err)
}
