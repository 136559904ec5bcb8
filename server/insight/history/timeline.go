// Package history answers what happened to an agent, and why upgrades failed across the fleet.
// It reads the documents of agents, the records of their history and the audit trail. The admin
// API calls it.
package history

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/cache"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/store"
)

// KindChange is the kind of an entry from the audit trail.
const KindChange fleet.HistoryKind = "change"

// Query selects one page of a timeline.
type Query struct {
	// Component selects what happened to one component, and to the agent itself if it is
	// empty; nil: all.
	Component *string
	// Before is Page.Next of the page before; empty: the page is the first.
	Before string
	Limit  int
}

// Page is a part of a timeline.
type Page struct {
	Entries []fleet.HistoryRecord
	Next    string // empty: there is nothing older
}

// Service answers from a store.
type Service struct {
	Store  store.Store
	Agents *inventory.Service
	Now    clock.Clock

	failures cache.Of[Failures]
}

// Timeline returns what happened to an agent: on the first page what is under way, then
// everything else, newest first by its beginning.
func (s *Service) Timeline(ctx context.Context, id string, q Query) (Page, error) {
	a, err := s.Agents.Get(ctx, id)
	if err != nil {
		return Page{}, err
	}
	before, err := parsePosition(q.Before)
	if err != nil {
		return Page{}, err
	}
	underway, over := ofDocument(&a, s.Now.UTC())
	// One more than the page, by which it is known whether there is a next one.
	records, err := s.Store.History().List(ctx, store.HistoryQuery{AgentID: a.ID, Component: q.Component, Before: before, Limit: q.Limit + 1})
	if err != nil {
		return Page{}, err
	}
	var changes []fleet.HistoryRecord
	if q.Component == nil || *q.Component == "" {
		if changes, err = changesOf(ctx, s.Store.Audit(), a.ID, before, q.Limit+1); err != nil {
			return Page{}, err
		}
	}
	return merge(q, before, underway, over, records, changes), nil
}

// merge puts the sources of a timeline together. What a record and the document both have
// appears once: under way as the document has it, and else as the record.
func merge(q Query, before store.HistoryPosition, underway, over, records, changes []fleet.HistoryRecord) Page {
	var page Page
	seen := map[string]bool{}
	for _, r := range underway {
		seen[r.ID] = true
		if before == (store.HistoryPosition{}) && of(&r, q.Component) {
			page.Entries = append(page.Entries, r)
		}
	}
	rest := changes
	for _, r := range slices.Concat(records, over) {
		if !seen[r.ID] && of(&r, q.Component) && isBefore(&r, before) {
			seen[r.ID] = true
			rest = append(rest, r)
		}
	}
	slices.SortFunc(rest, func(a, b fleet.HistoryRecord) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(b.ID, a.ID)) })
	if len(rest) > q.Limit {
		rest = rest[:q.Limit]
		last := rest[len(rest)-1]
		page.Next = position(store.HistoryPosition{At: last.At, ID: last.ID})
	}
	page.Entries = append(page.Entries, rest...)
	return page
}

func of(r *fleet.HistoryRecord, component *string) bool {
	return component == nil || r.Component == *component
}

func isBefore(r *fleet.HistoryRecord, p store.HistoryPosition) bool {
	return p == (store.HistoryPosition{}) || r.At.Before(p.At) || r.At.Equal(p.At) && r.ID < p.ID
}

// ofDocument returns what the agent's document knows: the upgrades under way, and what is over
// and may have no record.
func ofDocument(a *fleet.Agent, now time.Time) (underway, over []fleet.HistoryRecord) {
	for _, r := range a.LastUpgrades(now) {
		switch {
		case r.UnderWay() && a.Active:
			underway = append(underway, r)
		case r.UnderWay():
			r.State, r.Text = fleet.ProgressNone, "The agent was unenrolled before the upgrade was done."
			over = append(over, r)
		case r.State != fleet.ProgressNone:
			over = append(over, r) // its record may be removed by its age
		}
	}
	add := func(kind fleet.HistoryKind, at *time.Time, by, actionID, text string) {
		if at != nil && !at.IsZero() {
			over = append(over, fleet.HistoryRecord{ID: a.ID + "//" + string(kind) + "-" + at.UTC().Format(time.RFC3339Nano), AgentID: a.ID, At: *at, Kind: kind, By: by, ActionID: actionID, Text: text})
		}
	}
	add(fleet.HistoryEnrolled, &a.EnrolledAt, "", "", "The host enrolled.")
	left := "The agent was unenrolled."
	if a.UnenrolledReason != "" {
		left = "The agent was unenrolled: " + a.UnenrolledReason + "."
	}
	add(fleet.HistoryUnenrolled, a.UnenrolledAt, "", "", left)
	if a.AuditUnenrolledReason == "uninstall" {
		add(fleet.HistoryUnenrolled, a.AuditUnenrolledTime, "", "", "The agent was uninstalled on its host.")
	}
	for _, d := range a.Diagnostics {
		add(fleet.HistoryDiagnostics, &d.At, d.By, d.ActionID, "Diagnostics were requested.")
	}
	return underway, over
}

// equalTimes is how many entries of one time the audit trail may have at the end of a page.
const equalTimes = 50

// changesOf returns the entries of the audit trail about the agent.
func changesOf(ctx context.Context, trail store.Audit, agentID string, before store.HistoryPosition, limit int) ([]fleet.HistoryRecord, error) {
	q := store.AuditQuery{Subject: agentID, Limit: limit}
	if before != (store.HistoryPosition{}) {
		q.Until, q.Limit = &before.At, limit+equalTimes
	}
	list, _, err := trail.List(ctx, q)
	if err != nil {
		return nil, err
	}
	var out []fleet.HistoryRecord
	for _, e := range list {
		r := fleet.HistoryRecord{ID: e.ID, AgentID: agentID, At: e.At, Kind: KindChange, By: e.Actor, Text: e.Text, Why: e.Why}
		if isBefore(&r, before) {
			out = append(out, r)
		}
	}
	return out, nil
}

// separator is between the time and the id of a position. No time has it.
const separator = "~"

func position(p store.HistoryPosition) string {
	return p.At.UTC().Format(time.RFC3339Nano) + separator + p.ID
}

func parsePosition(text string) (p store.HistoryPosition, err error) {
	if text == "" {
		return p, nil
	}
	at, id, ok := strings.Cut(text, separator)
	if p.At, err = time.Parse(time.RFC3339Nano, at); err != nil || !ok || id == "" {
		return p, fleet.FieldError("query.before", "is %q, want next of the page before", text)
	}
	p.ID = id
	return p, nil
}
