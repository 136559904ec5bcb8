package fleet

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// View is a saved view of a list: the page, and what follows the question mark in its address.
type View struct {
	ID   string   `json:"id"`
	Page ViewPage `json:"page"`
	Name string   `json:"name"`
	// The page's address after the question mark
	Search    string    `json:"search" schema:"maxLength=4000"`
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`

	Revision int64 `json:"-"`
}

// ViewPage is a page that has saved views.
type ViewPage string

// Values of ViewPage.
const (
	ViewAgents    ViewPage = "agents"
	ViewActivity  ViewPage = "activity"
	ViewRollouts  ViewPage = "rollouts"
	ViewAudit     ViewPage = "audit"
	ViewIncidents ViewPage = "incidents"
)

// ViewPages are the pages that have saved views.
var ViewPages = []ViewPage{ViewAgents, ViewActivity, ViewRollouts, ViewAudit, ViewIncidents}

// The bounds of saved views. All are listed in each menu.
const (
	MaxViews          = 200
	MaxViewName       = 80
	MaxViewSearch     = 4000 // browsers and proxies accept addresses of 8,000 bytes
	viewIDBytes       = 16
	viewNameSeparator = "\x00"
)

// ViewID returns the id of the view of a page and a name, so that a store has one of each.
func ViewID(page ViewPage, name string) string {
	sum := sha256.Sum256([]byte(string(page) + viewNameSeparator + name))
	return base64.RawURLEncoding.EncodeToString(sum[:viewIDBytes])
}

// Check returns an error that names the first field that is wrong.
func (v View) Check() error {
	switch {
	case !slices.Contains(ViewPages, v.Page):
		return FieldError("body.page", "is %q, want one of %s", v.Page, List(ViewPages))
	case strings.TrimSpace(v.Name) == "":
		return FieldError("body.name", "is empty: name the view")
	case utf8.RuneCountInString(v.Name) > MaxViewName:
		return FieldError("body.name", "has %d characters, want at most %d", utf8.RuneCountInString(v.Name), MaxViewName)
	case strings.ContainsFunc(v.Name, func(r rune) bool { return r < ' ' }):
		return FieldError("body.name", "has a line break or another control character")
	case len(v.Search) > MaxViewSearch:
		return FieldError("body.search", "has %d bytes, want at most %d", len(v.Search), MaxViewSearch)
	}
	return nil
}

// Sample has the numbers of agents that were not unenrolled at one time, by version and
// health. Versions that few agents ran are together, under the empty text.
type Sample struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
	// Counts has the agents by version and health.
	Counts map[string]map[Health]int `json:"counts"`

	Revision int64 `json:"-"`
}
