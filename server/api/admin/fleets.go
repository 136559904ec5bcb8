package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/conversion"
	"github.com/muster-fleet/muster/server/rollout/spec/declare"
)

// routeFleets adds the routes of objects of kind Fleet. Their bodies are bare objects in the shape
// of Kubernetes', which its tools read.
func (h *Handlers) routeFleets(on bind) {
	on(adminapi.ConvertFleets.Call, h.convertFleets) // of a Kubernetes API server, which has no key
	on(adminapi.ListFleets.Call, h.listFleets)
	on(adminapi.CreateFleet.Call, h.createFleet)
	on(adminapi.GetFleet.Call, h.getFleet)
	on(adminapi.ApplyFleet.Call, h.applyFleet)
	on(adminapi.DeleteFleet.Call, h.deleteFleet)
	on(adminapi.DiffFleet.Call, h.diffFleet)
	on(adminapi.ResumeFleet.Call, h.resumeFleet)
	on(adminapi.ListFleetCommands.Call, h.listFleetCommands)
	on(adminapi.ListFleetHistory.Call, h.listFleetHistory)
	on(adminapi.GetFleetSchema.Call, h.getFleetSchema)
	on(adminapi.ExportFleets.Call, h.exportFleets)
}

// fleetList is adminapi.FleetList with objects that are encoded already.
type fleetList struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   fleetListMetadata `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

type fleetListMetadata struct {
	Total int `json:"total"`
}

const (
	// maxFleets bounds a page of objects: all that a server can have.
	maxFleets = declare.MaxObjects
	// maxHistory bounds a page of an object's changes.
	maxHistory = 1_000
	// maxReview bounds a ConversionReview, which is read before its sender is known. An API server
	// sends up to 500 objects of a list at once, which have some kilobytes each.
	maxReview = 8 << 20
	// reviewTimeout bounds the answer: a Kubernetes API server waits for half a minute at most.
	reviewTimeout = 30 * time.Second
)

// apiVersionOf reads in which version of the API the answer is to be.
func apiVersionOf(c *gin.Context) (string, error) {
	v := c.DefaultQuery("apiVersion", spec.APIVersion)
	if !slices.Contains(conversion.Versions, v) {
		return "", fleet.FieldError("query.apiVersion", "is %q, want %s", v, strings.Join(conversion.Versions, " or "))
	}
	return v, nil
}

// slice reads the parameters offset and limit.
func slice(c *gin.Context, def, most int) (offset, limit int, err error) {
	if offset, err = queryInt(c, "offset", 0, 0, maxPage); err != nil {
		return 0, 0, err
	}
	limit, err = queryInt(c, "limit", def, 1, most)
	return offset, limit, err
}

func (h *Handlers) listFleets(c *gin.Context) error {
	offset, limit, err := slice(c, maxFleets, maxFleets)
	if err != nil {
		return err
	}
	version, err := apiVersionOf(c)
	if err != nil {
		return err
	}
	labels, err := declare.ParseLabels(c.Query("labelSelector"))
	if err != nil {
		return err
	}
	objects, total, err := h.Declared.List(c.Request.Context(), labels, offset, limit)
	if err != nil {
		return err
	}
	items := make([]json.RawMessage, len(objects))
	for i, o := range objects {
		if items[i], err = o.In(version); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, fleetList{version, spec.Kind + "List", fleetListMetadata{total}, items})
	return nil
}

func (h *Handlers) getFleet(c *gin.Context) error {
	version, err := apiVersionOf(c)
	if err != nil {
		return err
	}
	o, err := h.Declared.Get(c.Request.Context(), c.Param("name"))
	return answerFleet(c, http.StatusOK, o, version, err)
}

// answerFleet answers with an object in a version of the API, or returns err.
func answerFleet(c *gin.Context, status int, o declare.Object, version string, err error) error {
	if err != nil {
		return err
	}
	doc, err := o.In(version)
	if err != nil {
		return err
	}
	c.JSON(status, doc)
	return nil
}

// dryRun reads the parameter dryRun, whose only value is that of Kubernetes.
func dryRun(c *gin.Context) (bool, error) {
	switch v := c.Query("dryRun"); v {
	case "":
		return false, nil
	case "All":
		c.Set(dryKey, true)
		return true, nil
	default:
		return false, fleet.FieldError("query.dryRun", "is %q, want All, or leave it out", v)
	}
}

func validation(c *gin.Context) (spec.Mode, error) {
	switch v := c.Query("validate"); v {
	case "", "strict":
		return spec.Strict, nil
	case "warn":
		return spec.Warn, nil
	default:
		return spec.Strict, fleet.FieldError("query.validate", "is %q, want strict or warn", v)
	}
}

func fleetRequest(c *gin.Context, why string) declare.Request {
	return declare.Request{Actor: actor(c), Why: strings.TrimSpace(why)}
}

// readFleet reads the body and the options of a call with an object.
func readFleet(c *gin.Context) (body []byte, o declare.Options, err error) {
	o.Request = fleetRequest(c, c.Query("why"))
	if o.DryRun, err = dryRun(c); err != nil {
		return nil, o, err
	}
	if o.Mode, err = validation(c); err != nil {
		return nil, o, err
	}
	body, err = httpapi.ReadBody(c, spec.MaxDocument)
	return body, o, err
}

// maxWarnings bounds the headers of one answer; clients refuse more than some hundred kilobytes.
const maxWarnings = 50

// warn sets the headers Warning, in the form of Kubernetes' API server.
func warn(c *gin.Context, warnings []string) {
	for _, w := range warnings[:min(len(warnings), maxWarnings)] {
		c.Writer.Header().Add("Warning", "299 - "+strconv.QuoteToASCII(w))
	}
}

func (h *Handlers) applyFleet(c *gin.Context) error {
	body, o, err := readFleet(c)
	if err != nil {
		return err
	}
	return h.apply(c, c.Param("name"), body, o)
}

func (h *Handlers) createFleet(c *gin.Context) error {
	body, o, err := readFleet(c)
	if err != nil {
		return err
	}
	o.Create = true
	return h.apply(c, "", body, o)
}

func (h *Handlers) apply(c *gin.Context, name string, body []byte, o declare.Options) error {
	a, err := h.Declared.Apply(c.Request.Context(), name, body, o)
	if err != nil {
		return err
	}
	if a.Same {
		c.Set(dryKey, true) // nothing was changed
	}
	warn(c, a.Warnings)
	status := http.StatusOK
	if a.Created {
		status = http.StatusCreated
	}
	return answerFleet(c, status, a.Object, a.Version, nil)
}

func (h *Handlers) deleteFleet(c *gin.Context) error {
	dry, err := dryRun(c)
	if err != nil {
		return err
	}
	o, err := h.Declared.Delete(c.Request.Context(), c.Param("name"), dry, fleetRequest(c, c.Query("why")))
	return answerFleet(c, http.StatusOK, o, spec.APIVersion, err)
}

func (h *Handlers) diffFleet(c *gin.Context) error {
	body, o, err := readFleet(c)
	if err != nil {
		return err
	}
	d, err := h.Declared.Diff(c.Request.Context(), c.Param("name"), body, o.Mode)
	if err != nil {
		return err
	}
	warn(c, d.Warnings)
	c.JSON(http.StatusOK, d)
	return nil
}

func (h *Handlers) resumeFleet(c *gin.Context) error {
	var req whyBody
	if err := decodeOptional(c, &req); err != nil {
		return err
	}
	o, err := h.Declared.Resume(c.Request.Context(), c.Param("name"), fleetRequest(c, req.Why))
	return answerFleet(c, http.StatusOK, o, spec.APIVersion, err)
}

func (h *Handlers) listFleetCommands(c *gin.Context) error {
	commands, err := h.Declared.Commands(c.Request.Context(), c.Param("name"))
	return send(c, list[fleet.Command]{commands}, err)
}

func (h *Handlers) listFleetHistory(c *gin.Context) error {
	offset, limit, err := slice(c, 100, maxHistory)
	if err != nil {
		return err
	}
	items, total, err := h.Declared.History(c.Request.Context(), c.Param("name"), offset, limit)
	return send(c, adminapi.FleetHistory{Items: items, Total: total}, err)
}

func (h *Handlers) getFleetSchema(c *gin.Context) error {
	schema, err := adminapi.Schema("Fleet")
	return send(c, schema, err)
}

func (h *Handlers) exportFleets(c *gin.Context) error {
	list, err := h.Declared.Export(c.Request.Context())
	if err != nil {
		return err
	}
	items, err := declare.Items(list)
	return send(c, fleetList{spec.APIVersion, spec.Kind + "List", fleetListMetadata{len(items)}, items}, err)
}

func (h *Handlers) convertFleets(c *gin.Context) error {
	return h.stranger(c, maxReview, func() error {
		body, err := httpapi.ReadBody(c, maxReview)
		if err != nil {
			return err
		}
		var answer []byte
		err = h.Limits.Review(c.Request.Context(), c.Request.RemoteAddr, func() (err error) {
			answer, err = conversion.Convert(body)
			return err
		})
		if err != nil {
			return err
		}
		// After the place is free again: a slow reader keeps only its share of the memory.
		_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(reviewTimeout))
		c.Data(http.StatusOK, "application/json", answer)
		return nil
	})
}
