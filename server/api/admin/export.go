package admin

import (
	"encoding/csv"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/inventory"
)

// exportColumn is a column of an export.
type exportColumn struct {
	name string
	of   func(*adminapi.Agent) string
}

// exportColumns are the columns in their order.
var exportColumns = []exportColumn{
	{"id", func(a *adminapi.Agent) string { return a.Id }},
	{"hostname", func(a *adminapi.Agent) string {
		host, _ := a.LocalMetadata["host"].(map[string]any)
		name, _ := host["hostname"].(string)
		return name
	}},
	{"health", func(a *adminapi.Agent) string { return string(deref(a.Health)) }},
	{"progress", func(a *adminapi.Agent) string { return string(deref(a.Progress).State) }},
	{"progress_since", func(a *adminapi.Agent) string { return exportTime(deref(a.Progress).Since) }},
	{"version", func(a *adminapi.Agent) string { return a.Agent.Version }},
	{"desired_version", func(a *adminapi.Agent) string { return deref(a.DesiredVersion) }},
	{"last_healthy_version", func(a *adminapi.Agent) string { return deref(a.LastHealthyVersion) }},
	{"policy", func(a *adminapi.Agent) string { return a.PolicyId }},
	{"tags", func(a *adminapi.Agent) string { return strings.Join(a.Tags, " ") }},
	{"os", func(a *adminapi.Agent) string {
		system, _ := a.LocalMetadata["os"].(map[string]any)
		kind, _ := system["type"].(string)
		return kind
	}},
	{"site", func(a *adminapi.Agent) string { return deref(a.Site) }},
	{"last_checkin", func(a *adminapi.Agent) string { return exportTime(a.LastCheckin) }},
	{"message", func(a *adminapi.Agent) string { return deref(a.LastCheckinMessage) }},
	{"reason", func(a *adminapi.Agent) string {
		if p := a.Progress; p != nil && p.Reason != nil {
			return p.Reason.Text
		}
		return ""
	}},
}

func exportTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// exportPage is how many agents an export holds in memory: some 10 MB with their documents.
const exportPage = 1000

// exportWrite bounds the write of one page: a slow link sends 200 kB in some seconds.
const exportWrite = time.Minute

// exportAgents sends the agents page by page, so that the size of the fleet needs no memory. An
// error after the first page can only cut the table off, which clients see as a broken transfer.
func (h *Handlers) exportAgents(c *gin.Context) error {
	ctx := c.Request.Context()
	columns := exportColumns
	if list := c.Query("columns"); list != "" {
		columns = nil
		for name := range strings.SplitSeq(list, ",") {
			i := slices.IndexFunc(exportColumns, func(col exportColumn) bool { return col.name == name })
			if i < 0 {
				return fleet.FieldError("query.columns", "has %q, which is no column", name)
			}
			columns = append(columns, exportColumns[i])
		}
	}
	inactive, err := queryBool(c, "showInactive")
	if err != nil {
		return err
	}
	of, err := h.Inventory.Find(ctx, inventory.Selection{Kuery: c.Query("kuery"), Inactive: inactive})
	if err != nil {
		return err
	}
	out := http.NewResponseController(c.Writer)
	table := csv.NewWriter(c.Writer)
	table.UseCRLF = true // RFC 4180
	row := make([]string, len(columns))
	first := true
	for page, err := range h.Inventory.Pages(ctx, of, exportPage) {
		if err != nil {
			return abort(c, first, err)
		}
		var room listed
		rendered := each(page, func(a fleet.Agent) adminapi.Agent { return renderAgent(room.fit(&a), of.Timeouts, of.Now) })
		if err := h.addVersions(ctx, page, rendered); err != nil {
			return abort(c, first, err)
		}
		if first {
			c.Header("Content-Type", "text/csv; charset=utf-8; header=present")
			c.Header("Content-Disposition", `attachment; filename="agents.csv"`)
			c.Status(http.StatusOK)
			for i, col := range columns {
				row[i] = col.name
			}
			_ = table.Write(row) // its error is that of Flush
		}
		_ = out.SetWriteDeadline(time.Now().Add(exportWrite))
		for i := range rendered {
			for k, col := range columns {
				row[k] = exportCell(col.of(&rendered[i]))
			}
			_ = table.Write(row)
		}
		if table.Flush(); table.Error() != nil {
			return nil //nolint:nilerr // the client has gone
		}
		first = false
	}
	return nil
}

// abort returns an error that can still be answered. Otherwise it closes the connection, so that
// the client does not take a part of the table for all of it.
func abort(_ *gin.Context, first bool, err error) error {
	if first {
		return err
	}
	panic(http.ErrAbortHandler)
}

// exportCell keeps a spreadsheet from taking what a host reports for a formula: it gets an
// apostrophe in front.
func exportCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
