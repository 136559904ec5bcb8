package adminapi

import (
	"net/http"

	"github.com/muster-fleet/muster/server/rollout/spec"
)

// The operations of the area fleets.
var (
	ListFleets = op[None, FleetList](Call{
		ID: "listFleets", Method: http.MethodGet, Path: "/api/v1/fleets",
		Area: AreaFleets, Permission: "fleets.read",
		Summary: "List the objects of kind Fleet, by name",
		Answer:  "The objects",
		Params: []Param{
			{Name: "labelSelector", Doc: "Only objects with all of these labels, as in app=web,stage=prod"},
			{Name: "offset", Is: 0, Schema: "minimum=0,default=0", Doc: "How many objects to leave out"},
			{Name: "limit", Is: 0, Schema: "minimum=1,maximum=5000", Doc: "The most objects to return; default: all"},
			fleetVersion,
		},
	})

	CreateFleet = op[Fleet, Fleet](Call{
		ID: "createFleet", Method: http.MethodPost, Path: "/api/v1/fleets",
		Area: AreaFleets, Permission: "fleets.write",
		Summary:     "Create an object of kind Fleet",
		Description: "As PUT, but refused with 409 if there is an object with this name.",
		YAML:        true,
		Answer:      "The object",
		Status:      http.StatusCreated,
		Params: []Param{
			fleetDryRun,
			fleetValidate,
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	GetFleet = op[None, Fleet](Call{
		ID: "getFleet", Method: http.MethodGet, Path: "/api/v1/fleets/{name}",
		Area: AreaFleets, Permission: "fleets.read",
		Summary:     "Get an object",
		Description: "The spec is the one that was written, without defaults of the server.",
		Answer:      "The object",
		Params: []Param{
			{Name: "name", In: "path", Doc: "metadata.name of the object"},
			fleetVersion,
		},
	})

	ApplyFleet = op[Fleet, Fleet](Call{
		ID: "applyFleet", Method: http.MethodPut, Path: "/api/v1/fleets/{name}",
		Area: AreaFleets, Permission: "fleets.write",
		Summary:     "Create an object, or replace its labels, annotations and spec",
		Description: "The body is JSON, or YAML if Content-Type is application/yaml, and of any version of the API. The answer is of the same version. If nothing differs from the stored object, nothing is written and resourceVersion stays. If the body has metadata.uid or metadata.resourceVersion, it must be that of the stored object, otherwise the call is refused with 409. Status in the body is ignored. All errors of the body are reported at once, one on each line, with their paths. Warnings are headers Warning: 299, as those of Kubernetes.",
		YAML:        true,
		Answer:      "The object that was replaced",
		Created:     "The object that was created",
		Params: []Param{
			{Name: "name", In: "path", Doc: "metadata.name of the object"},
			fleetDryRun,
			fleetValidate,
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	DeleteFleet = op[None, Fleet](Call{
		ID: "deleteFleet", Method: http.MethodDelete, Path: "/api/v1/fleets/{name}",
		Area: AreaFleets, Permission: "fleets.write",
		Summary:     "Delete an object",
		Description: "Agents keep the versions that they run. A rollout under way is cancelled, unless it is promoting: then it goes on to its end.",
		Answer:      "The object as it was",
		Params: []Param{
			{Name: "name", In: "path", Doc: "metadata.name of the object"},
			fleetDryRun,
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	DiffFleet = op[Fleet, FleetDiff](Call{
		ID: "diffFleet", Method: http.MethodPost, Path: "/api/v1/fleets/{name}/diff",
		Area: AreaFleets, Permission: "fleets.read",
		Summary:     "Preview what applying an object would do",
		Description: "The body is as that of PUT. Nothing is stored.",
		YAML:        true,
		Answer:      "The difference",
		Unaudited:   true,
		Params: []Param{
			{Name: "name", In: "path", Doc: "metadata.name of the object"},
			fleetValidate,
		},
	})

	ResumeFleet = op[WhyRequest, Fleet](Call{
		ID: "resumeFleet", Method: http.MethodPost, Path: "/api/v1/fleets/{name}/resume",
		Area: AreaFleets, Permission: "fleets.write",
		Summary:      "Resume an object that an order has suspended",
		OptionalBody: true,
		Answer:       "The object",
		Params: []Param{
			{Name: "name", In: "path", Doc: "metadata.name of the object"},
		},
	})

	ListFleetCommands = op[None, CommandList](Call{
		ID: "listFleetCommands", Method: http.MethodGet, Path: "/api/v1/fleets/{name}/commands",
		Area: AreaFleets, Permission: "fleets.read",
		Summary:     "List what can be ordered for an object now, the primary command first",
		Description: "resume and delete are calls. pause, unpause and promote are changes of the spec: spec.paused, and status.requestedRolloutHash in spec.forcePromote. The object itself has no commands, so that it stays as tools of Kubernetes expect it.",
		Answer:      "The commands",
		Params: []Param{
			{Name: "name", In: "path", Doc: "metadata.name of the object"},
		},
	})

	ListFleetHistory = op[None, FleetHistory](Call{
		ID: "listFleetHistory", Method: http.MethodGet, Path: "/api/v1/fleets/{name}/history",
		Area: AreaFleets, Permission: "fleets.read",
		Summary:     "List who changed an object, how and why, newest first",
		Description: "It is read from the audit trail, and so remains when the object is deleted.",
		Answer:      "The changes",
		Params: []Param{
			{Name: "name", In: "path", Doc: "metadata.name of the object"},
			{Name: "offset", Is: 0, Schema: "minimum=0,default=0"},
			{Name: "limit", Is: 0, Schema: "minimum=1,maximum=1000,default=100"},
		},
	})

	GetFleetSchema = op[None, FleetSchema](Call{
		ID: "getFleetSchema", Method: http.MethodGet, Path: "/api/v1/fleet-schema",
		Area: AreaFleets, Permission: "fleets.read",
		Summary: "Get the JSON schema of objects of kind Fleet, with a description of every field",
		Answer:  "The schema",
	})

	ExportFleets = op[None, FleetList](Call{
		ID: "exportFleets", Method: http.MethodGet, Path: "/api/v1/fleet-export",
		Area: AreaFleets, Permission: "fleets.read",
		Summary:     "Get what policies and active rollouts demand as objects of kind Fleet",
		Description: "For a fleet that begins with objects of kind Fleet. Applying the objects upgrades no agent that runs the versions already. Left out are policies that an object selects by their id, or because it selects all agents, and what an object cannot say: a version for some percent of the agents, rollbacks, and rollouts that the server has started.",
		Answer:      "The objects",
	})

	ConvertFleets = op[ConversionReview, ConversionReview](Call{
		ID: "convertFleets", Method: http.MethodPost, Path: "/convert",
		Area:        AreaFleets,
		Summary:     "Convert objects between the versions of the API, for a Kubernetes API server",
		Description: "Body and answer are a ConversionReview of apiextensions.k8s.io/v1. The call needs no credentials: it reads and changes nothing but its body.",
		Answer:      "The converted objects",
		Admission:   Stranger,
	})
)

// CommandList is the answer of GET /api/v1/fleets/{name}/commands.
type CommandList struct {
	Items []Command `json:"items"`
}

// Fleet is which versions a part of the fleet runs, and how it gets there. A change of the spec is all
// that starts a rollout: the server compares a hash of the fields that matter with the hash of the
// last rollout.
type Fleet = spec.Fleet

// FleetMetadata is name, labels and annotations are written by users, the rest by the server, with the
// same meanings as in Kubernetes.
type FleetMetadata = spec.Metadata

// FleetSpec is what an operator declares. selector, agent, components, configuration and strategy
// start a rollout when they change; everything else takes effect in the rollout under way, or in the
// next one.
type FleetSpec = spec.Spec

// FleetDesired is the version of the agents themselves, by version or by upgrade manifest; without it the
// object leaves the agents' own version alone. A change starts a rollout.
type FleetDesired = spec.Desired

// FleetManifest is an upgrade manifest on the server, which provides version, packages and migration.
type FleetManifest = spec.UpgradeManifest

// FleetComponent is the version of one component, by version or by upgrade manifest.
type FleetComponent = spec.Component

// FleetConfiguration is what hosts get besides versions. A change starts a rollout.
type FleetConfiguration = spec.Configuration

// FleetStatus is how far the server is. Only the server writes it.
type FleetStatus = spec.Status

// FleetForceRollout is the last value of the annotation muster.dev/force-rollout that was carried out.
type FleetForceRollout = spec.ForceRollout

// FleetRollout is the last rollout that was created for the object.
type FleetRollout = spec.RolloutStatus

// FleetCondition is a condition as in Kubernetes.
type FleetCondition = spec.Condition

// FleetConditionType is a value of type of FleetCondition.
type FleetConditionType = spec.ConditionType

// FleetConditionStatus is a value of status of FleetCondition.
type FleetConditionStatus = spec.ConditionStatus

// FleetList is the answer of GET /api/v1/fleets.
type FleetList struct {
	ApiVersion string `json:"apiVersion" example:"muster.dev/v1alpha2"`
	// Always FleetList
	Kind     string            `json:"kind"`
	Metadata FleetListMetadata `json:"metadata"`
	Items    []Fleet           `json:"items"`
}

// FleetListMetadata has the number of objects.
type FleetListMetadata struct {
	// Number of objects that match, also beyond limit
	Total int `json:"total"`
}

// FleetDiff is what applying an object would do.
type FleetDiff struct {
	Before *Fleet `json:"before,omitempty"`
	After  Fleet  `json:"after"`
	FleetDiffResult
}

// FleetDiffResult is what a FleetDiff says of the two objects.
type FleetDiffResult = spec.DiffResult

// FleetPreview is what the rollout of one part would do to the fleet as it is now.
type FleetPreview = spec.PartPreview

// FleetHistory is the answer of GET /api/v1/fleets/{name}/history.
type FleetHistory struct {
	Items []FleetChange `json:"items"`
	Total int           `json:"total"`
}

// FleetChange is one change of an object.
type FleetChange = spec.Change

// FleetChangeAction is a value of action of FleetChange.
type FleetChangeAction = spec.ChangeAction

// FleetRolloutRef names a rollout that a change of an object created.
type FleetRolloutRef = spec.RolloutRef

// FleetSchema is a JSON schema: type, description, properties, required, items, enum.
type FleetSchema map[string]any

// ConversionReview is the body of POST /convert.
type ConversionReview struct {
	ApiVersion string `json:"apiVersion" example:"apiextensions.k8s.io/v1"`
	// Always ConversionReview
	Kind string `json:"kind"`
	// uid, desiredAPIVersion, objects
	Request *map[string]any `json:"request,omitempty"`
	// uid, result, convertedObjects
	Response *map[string]any `json:"response,omitempty"`
}
