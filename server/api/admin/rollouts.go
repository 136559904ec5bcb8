package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
)

// routeRollouts adds the routes of rollouts.
func (h *Handlers) routeRollouts(on bind) {
	on(adminapi.ListRollouts.Call, h.listRollouts)
	on(adminapi.CreateRollout.Call, h.createRollout)
	on(adminapi.DryRunRollout.Call, h.dryRunRollout)
	on(adminapi.GetRolloutGrid.Call, h.rolloutGrid)
	on(adminapi.GetRollout.Call, h.getRollout)
	on(adminapi.DeleteRollout.Call, h.deleteRollout)
	on(adminapi.PreviewRollout.Call, h.previewRollout)
	on(adminapi.GetRolloutPreview.Call, h.getRolloutPreview)
	on(adminapi.ListPreviewConfigs.Call, h.listPreviewConfigs)
	on(adminapi.StartRollout.Call, h.startRollout)
	on(adminapi.PauseRollout.Call, h.pauseRollout)
	on(adminapi.ResumeRollout.Call, h.command((*rollout.Service).Resume))
	on(adminapi.ForceRollout.Call, h.command((*rollout.Service).Force))
	on(adminapi.ApproveRollout.Call, h.command((*rollout.Service).Approve))
	on(adminapi.PromoteRollout.Call, h.command((*rollout.Service).Promote))
	on(adminapi.CancelRollout.Call, h.cancelRollout)
	on(adminapi.AdjustRollout.Call, h.adjustRollout)
	on(adminapi.RetryTargets.Call, h.retryTargets)
	on(adminapi.SkipTargets.Call, h.skipTargets)
	on(adminapi.RollbackRollout.Call, h.rollbackRollout)
	on(adminapi.ListTargets.Call, h.listTargets)
	on(adminapi.RetryTarget.Call, h.retryTarget)
	on(adminapi.ListAudit.Call, h.listAudit)
	on(adminapi.ExplainAgent.Call, h.explainAgent)
	on(adminapi.GetExposure.Call, h.getExposure)
	on(adminapi.SetExposure.Call, h.setExposure)
	on(adminapi.ListFreezes.Call, h.listFreezes)
	on(adminapi.CreateFreeze.Call, h.createFreeze)
	on(adminapi.ChangeFreeze.Call, h.changeFreeze)
	on(adminapi.DeleteFreeze.Call, h.deleteFreeze)
	on(adminapi.ListUpgradeManifests.Call, h.listUpgradeManifests)
	on(adminapi.GetUpgradeManifest.Call, h.getUpgradeManifest)
	on(adminapi.PreviewConfig.Call, h.previewConfig)
}

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
func answer[T any](c *gin.Context, v T, err error) error { return send(c, item[T]{v}, err) }

// send answers with v unless there is an error.
func send(c *gin.Context, v any, err error) error {
	if err == nil {
		c.JSON(http.StatusOK, v)
	}
	return err
}

// answerPage sends the requested page of a list, which get reads.
func answerPage[T any](c *gin.Context, get func(offset, limit int) ([]T, int, error)) error {
	number, size, err := page(c, 1)
	if err != nil {
		return err
	}
	values, total, err := get((number-1)*size, size)
	return send(c, paged[T]{orEmpty(values), total, number, size}, err)
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

// runRollout is runCommand for a command whose result is a rollout.
func (h *Handlers) runRollout(c *gin.Context, decode func(*gin.Context, any) error, req interface{ reason() string }, do func(rollout.Request) (fleet.Rollout, error)) error {
	return runCommand(c, decode, req, func(w rollout.Request) (adminapi.Rollout, error) {
		r, err := do(w)
		if err != nil {
			return adminapi.Rollout{}, err
		}
		return h.viewOf(c, r)
	})
}

func (h *Handlers) viewOf(c *gin.Context, r fleet.Rollout) (adminapi.Rollout, error) {
	o, err := h.Rollouts.Overview(c.Request.Context(), &r)
	r.Marks = nil
	return adminapi.Rollout{Rollout: r, Overview: o}, err
}

func rolloutID(c *gin.Context) string { return c.Param("rolloutId") }

func (h *Handlers) listRollouts(c *gin.Context) error {
	states, err := queryWords(c, "state", "the state of a rollout", rolloutStates)
	if err != nil {
		return err
	}
	kinds, err := queryWords(c, "kind", "a strategy", plan.Kinds())
	if err != nil {
		return err
	}
	return answerPage(c, func(offset, limit int) ([]adminapi.Rollout, int, error) {
		rollouts, total, err := h.rolloutsWith(c.Request.Context(), states, kinds, offset, limit)
		if err != nil {
			return nil, 0, err
		}
		views := make([]adminapi.Rollout, len(rollouts))
		for i := range rollouts {
			views[i].Rollout = rollouts[i]
			// Who looks at a list asks how those that run are getting on.
			if rollouts[i].State.Active() {
				if views[i], err = h.viewOf(c, rollouts[i]); err != nil {
					return nil, 0, err
				}
			}
			views[i].Batches, views[i].Marks = nil, nil // a thousand batches may have 300 KB
		}
		return views, total, nil
	})
}

var rolloutStates = []fleet.RolloutState{
	fleet.RolloutDraft, fleet.RolloutRunning, fleet.RolloutPaused, fleet.RolloutCancelling, fleet.RolloutCompleted, fleet.RolloutFailed, fleet.RolloutCancelled, fleet.RolloutRolledBack,
}

// rolloutsRead is how many rollouts a filtered list reads at one time: with a thousand batches
// each they take 30 MB.
const rolloutsRead = 100

// rolloutsWith returns a page of the rollouts with one of these states and strategies; an empty list
// means any. With a filter it reads all rollouts, of which there are some hundreds after years.
func (h *Handlers) rolloutsWith(ctx context.Context, states []fleet.RolloutState, kinds []string, offset, limit int) ([]fleet.Rollout, int, error) {
	if len(states)+len(kinds) == 0 {
		return h.Rollouts.List(ctx, offset, limit)
	}
	var with []fleet.Rollout
	for from := 0; ; from += rolloutsRead {
		some, total, err := h.Rollouts.List(ctx, from, rolloutsRead)
		if err != nil {
			return nil, 0, err
		}
		for _, r := range some {
			if (len(states) == 0 || slices.Contains(states, r.State)) && (len(kinds) == 0 || slices.Contains(kinds, string(r.Plan.Strategy.Kind))) {
				with = append(with, r)
			}
		}
		if from+rolloutsRead >= total {
			return fleet.Part(with, offset, limit), len(with), nil
		}
	}
}

// queryWords returns the values of a parameter that may be repeated, or have several separated by
// commas. Each must be known.
func queryWords[T ~string](c *gin.Context, name, what string, known []T) ([]T, error) {
	var out []T
	for _, words := range c.QueryArray(name) {
		for _, word := range strings.Split(words, ",") {
			v := T(strings.TrimSpace(word))
			if !slices.Contains(known, v) {
				return nil, fleet.FieldError("query."+name, "is %q, which is not %s", word, what)
			}
			out = append(out, v)
		}
	}
	return out, nil
}

func (h *Handlers) createRollout(c *gin.Context) error {
	var req struct {
		whyBody
		Plan     *fleet.Plan `json:"plan"`
		From     string      `json:"from"`
		Failed   bool        `json:"failed"`
		TakeOver string      `json:"take_over"`
	}
	return h.runRollout(c, decode, &req, func(w rollout.Request) (fleet.Rollout, error) {
		w.TakeOver = req.TakeOver
		switch {
		case req.From != "" && req.Plan != nil:
			return fleet.Rollout{}, fleet.FieldError("body.plan", "does not go with from: the rollout gets the plan of %s", req.From)
		case req.Failed != (req.From != ""):
			return fleet.Rollout{}, fleet.FieldError("body.failed", "goes with from: name the rollout whose failed targets are tried again, and say failed: true")
		case req.From != "":
			return h.Rollouts.CreateForFailed(c.Request.Context(), req.From, w)
		case req.Plan == nil:
			return fleet.Rollout{}, fleet.FieldError("body.plan", "is missing: give a plan, or from and failed")
		}
		return h.Rollouts.Create(c.Request.Context(), *req.Plan, w)
	})
}

func (h *Handlers) getRollout(c *gin.Context) error {
	r, err := h.Rollouts.Get(c.Request.Context(), rolloutID(c))
	if err != nil {
		return err
	}
	v, err := h.viewOf(c, r)
	return answer(c, v, err)
}

func (h *Handlers) deleteRollout(c *gin.Context) error {
	w, err := requestOf(c, c.Query("why"))
	if err != nil {
		return err
	}
	return send(c, adminapi.ActionWord{Action: "deleted"}, h.Rollouts.Delete(c.Request.Context(), rolloutID(c), w))
}

func (h *Handlers) previewRollout(c *gin.Context) error {
	p, err := h.Rollouts.Preview(c.Request.Context(), rolloutID(c))
	return h.answerPreviewOf(c, p, err)
}

func (h *Handlers) getRolloutPreview(c *gin.Context) error {
	p, err := h.storedPreview(c)
	return h.answerPreviewOf(c, p, err)
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
	return answerRolloutPreview(c, p, &req.Plan, err)
}

// answerPreviewOf answers with a preview of a stored rollout.
func (h *Handlers) answerPreviewOf(c *gin.Context, p fleet.Preview, err error) error {
	if err != nil {
		return err
	}
	r, err := h.Rollouts.Get(c.Request.Context(), rolloutID(c))
	return answerRolloutPreview(c, p, &r.Plan, err)
}

// answerRolloutPreview answers with a preview of a plan, of which the caller wants so many targets
// and skipped agents.
func answerRolloutPreview(c *gin.Context, p fleet.Preview, of *fleet.Plan, err error) error {
	if err != nil {
		return err
	}
	v := adminapi.RolloutPreview{Preview: withLists(p), Causes: preview.Causes(&p, of), TargetCount: len(p.Targets), SkippedCount: len(p.Skipped)}
	if c.Query("max_items") != "" {
		most, err := queryInt(c, "max_items", 0, 0, fleet.MaxTargets)
		if err != nil {
			return err
		}
		v.Targets, v.Skipped = v.Targets[:min(most, len(v.Targets))], v.Skipped[:min(most, len(v.Skipped))]
	}
	return answer(c, v, nil)
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
	err := h.runRollout(c, decode, &req, func(w rollout.Request) (fleet.Rollout, error) {
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
	return h.runRollout(c, decodeOptional, &req, func(w rollout.Request) (fleet.Rollout, error) {
		return h.Rollouts.Pause(c.Request.Context(), rolloutID(c), req.Now, w)
	})
}

func (h *Handlers) cancelRollout(c *gin.Context) error {
	var req struct {
		whyBody
		Now bool `json:"now"`
	}
	return h.runRollout(c, decodeOptional, &req, func(w rollout.Request) (fleet.Rollout, error) {
		if req.Now {
			return h.Rollouts.CancelNow(c.Request.Context(), rolloutID(c), w)
		}
		return h.Rollouts.Cancel(c.Request.Context(), rolloutID(c), w)
	})
}

func (h *Handlers) adjustRollout(c *gin.Context) error {
	var req struct {
		whyBody
		rollout.Adjustment
	}
	return h.runRollout(c, decode, &req, func(w rollout.Request) (fleet.Rollout, error) {
		return h.Rollouts.AdjustParts(c.Request.Context(), rolloutID(c), req.Adjustment, w)
	})
}

// command returns a handler for a command that takes only a reason.
func (h *Handlers) command(do func(s *rollout.Service, ctx context.Context, id string, w rollout.Request) (fleet.Rollout, error)) func(*gin.Context) error {
	return func(c *gin.Context) error {
		return h.runRollout(c, decodeOptional, &whyBody{}, func(w rollout.Request) (fleet.Rollout, error) {
			return do(h.Rollouts, c.Request.Context(), rolloutID(c), w)
		})
	}
}

// targetsRequest is the body of a command on some targets.
type targetsRequest struct {
	whyBody
	Agents []string `json:"agents"`
}

func (h *Handlers) retryTargets(c *gin.Context) error {
	var req targetsRequest
	return h.runRollout(c, decodeOptional, &req, func(w rollout.Request) (fleet.Rollout, error) {
		return h.Rollouts.Retry(c.Request.Context(), rolloutID(c), req.Agents, w)
	})
}

func (h *Handlers) retryTarget(c *gin.Context) error {
	return h.runRollout(c, decodeOptional, &whyBody{}, func(w rollout.Request) (fleet.Rollout, error) {
		return h.Rollouts.Retry(c.Request.Context(), rolloutID(c), []string{c.Param("agentId")}, w)
	})
}

func (h *Handlers) skipTargets(c *gin.Context) error {
	var req targetsRequest
	return h.runRollout(c, decode, &req, func(w rollout.Request) (fleet.Rollout, error) {
		return h.Rollouts.Skip(c.Request.Context(), rolloutID(c), req.Agents, w)
	})
}

func (h *Handlers) rollbackRollout(c *gin.Context) error {
	var req struct {
		whyBody
		Scope    rollout.Scope `json:"scope"`
		TakeOver string        `json:"take_over"`
	}
	return h.runRollout(c, decode, &req, func(w rollout.Request) (fleet.Rollout, error) {
		w.TakeOver = req.TakeOver
		return h.Rollouts.Rollback(c.Request.Context(), rolloutID(c), req.Scope, w)
	})
}

func (h *Handlers) listTargets(c *gin.Context) error {
	q := rollout.TargetQuery{Agent: c.Query("agent"), Code: c.Query("code")}
	q.RolloutID = rolloutID(c)
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
	ctx := c.Request.Context()
	r, err := h.Rollouts.Get(ctx, q.RolloutID)
	if err != nil {
		return err
	}
	return answerPage(c, func(offset, limit int) ([]adminapi.Target, int, error) {
		q.Offset, q.Limit = offset, limit
		targets, total, err := h.Rollouts.FindTargets(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		progress, err := h.Rollouts.Progress(ctx, &r, targets)
		if err != nil {
			return nil, 0, err
		}
		commands, err := h.Rollouts.Commands(ctx, &r)
		views := make([]adminapi.Target, len(targets))
		for i := range targets {
			views[i] = adminapi.Target{Target: targets[i], Progress: progress[i], Commands: plan.TargetCommands(&r, commands, &targets[i])}
		}
		return views, total, err
	})
}

func (h *Handlers) listAudit(c *gin.Context) error {
	return answerPage(c, func(offset, limit int) ([]fleet.AuditEntry, int, error) {
		return h.Rollouts.Trail(c.Request.Context(), rolloutID(c), offset, limit)
	})
}

func (h *Handlers) explainAgent(c *gin.Context) error {
	at, err := timeParameter(c, "at")
	if err != nil {
		return err
	}
	e, err := h.Rollouts.Why(c.Request.Context(), c.Param("agentId"), c.Query("component"), c.Query("rollout"), deref(at))
	e.Chain = orEmpty(e.Chain)
	return answer(c, e, err)
}
