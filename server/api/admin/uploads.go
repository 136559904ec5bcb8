package admin

import (
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/diagnostics"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// routeUploads adds the routes of agents' diagnostics.
func (h *Handlers) routeUploads(on bind) {
	on(adminapi.RequestDiagnostics.Call, h.requestDiagnostics)
	on(adminapi.BulkRequestDiagnostics.Call, h.bulkRequestDiagnostics)
	on(adminapi.ListUploads.Call, h.listUploads)
	on(adminapi.GetUpload.Call, h.getUpload)
	on(adminapi.DeleteUpload.Call, h.deleteUpload)
}

// diagnosticsData accepts what Kibana's schema does.
func diagnosticsData(metrics *[]adminapi.DiagnosticsMetric, withoutEvents *bool) (d agentapi.RequestDiagnosticsData, err error) {
	d.ExcludeEventsLog = isSet(withoutEvents)
	for i, m := range deref(metrics) {
		if i > 0 {
			return d, fleet.FieldError("body.additional_metrics", "has %d entries, want at most 1", len(*metrics))
		}
		if m != adminapi.CPU {
			return d, fleet.FieldError("body.additional_metrics[0]", "is %q, want CPU", m)
		}
		d.AdditionalMetrics = append(d.AdditionalMetrics, string(m))
	}
	return d, nil
}

func (h *Handlers) requestDiagnostics(c *gin.Context) error {
	var req adminapi.DiagnosticsRequest
	if err := decodeOptional(c, &req); err != nil {
		return err
	}
	data, err := diagnosticsData(req.AdditionalMetrics, req.ExcludeEventsLog)
	if err != nil {
		return err
	}
	a, err := h.Actions.RequestDiagnostics(c.Request.Context(), action.DiagnosticsOrder{
		AgentIDs: []string{c.Param("agentId")}, Single: true, RequestDiagnosticsData: data, Actor: actor(c),
	})
	return send(c, adminapi.ActionCreated{ActionId: a.ID}, err)
}

func (h *Handlers) bulkRequestDiagnostics(c *gin.Context) error {
	var req adminapi.BulkDiagnosticsRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	data, err := diagnosticsData(req.AdditionalMetrics, req.ExcludeEventsLog)
	if err != nil {
		return err
	}
	return h.bulk(c, req.Agents, nil, req.DryRun, func(ids []string, selected bool) (fleet.Action, error) {
		return h.Actions.RequestDiagnostics(c.Request.Context(), action.DiagnosticsOrder{AgentIDs: ids, Selected: selected, RequestDiagnosticsData: data, Actor: actor(c)})
	})
}

func (h *Handlers) listUploads(c *gin.Context) error {
	ctx := c.Request.Context()
	a, err := h.Inventory.Get(ctx, c.Param("agentId"))
	if err != nil {
		return err
	}
	files, err := h.Uploads.List(ctx, a)
	return send(c, adminapi.UploadList{Items: each(files, renderUpload)}, err)
}

func renderUpload(f diagnostics.File) adminapi.Upload {
	u := adminapi.Upload{
		Id: f.ID, ActionId: f.ActionID, Name: f.Name, CreateTime: f.At, Status: adminapi.UploadStatus(f.Status), Error: ptr(f.Error),
	}
	if f.Uploaded {
		u.FilePath = "/api/fleet/agents/files/" + url.PathEscape(f.ID) + "/" + url.PathEscape(f.Name)
	}
	return u
}

// fileTimeout bounds the download of one file: 100 MiB at 30 kB/s.
const fileTimeout = time.Hour

func (h *Handlers) getUpload(c *gin.Context) error {
	u, err := h.Uploads.Get(c.Request.Context(), c.Param("fileId"))
	if err != nil {
		return err
	}
	// The name is the caller's, as in Kibana; FormatMediaType quotes it, and returns nothing
	// if it cannot.
	attachment := mime.FormatMediaType("attachment", map[string]string{"filename": c.Param("fileName")})
	if attachment == "" {
		attachment = "attachment"
	}
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(fileTimeout))
	// Not the type that the host has announced: a browser must not show its file.
	c.Header("Content-Type", "application/octet-stream")
	c.Header("Content-Disposition", attachment)
	c.Header("Content-Length", strconv.FormatInt(u.Size, 10))
	err = h.Uploads.Copy(c.Request.Context(), u, lazyWriter{c.Writer})
	if err != nil && !c.Writer.Written() {
		for _, name := range []string{"Content-Disposition", "Content-Length"} {
			c.Writer.Header().Del(name)
		}
		return err
	}
	if err != nil {
		h.API.Log.Warn("a file was not sent whole", "file", u.ID, "error", err)
		panic(http.ErrAbortHandler) // so that the client does not take it for whole
	}
	return nil
}

// lazyWriter does not pass on empty writes, with which gin would send the status, so that an
// error before the first byte can still be answered.
type lazyWriter struct{ gin.ResponseWriter }

func (w lazyWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return w.ResponseWriter.Write(p)
}

func (h *Handlers) deleteUpload(c *gin.Context) error {
	id := c.Param("fileId")
	return send(c, adminapi.UploadDeleted{Id: id, Deleted: true}, h.Uploads.Delete(c.Request.Context(), id, actor(c)))
}
