package adminapi

import (
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// The operations of the area webhooks.
var (
	ListWebhooks = op[None, WebhookList](Call{
		ID: "listWebhooks", Method: http.MethodGet, Path: "/api/v1/webhooks",
		Area: AreaWebhooks, Permission: "webhooks.read",
		Summary: "List webhooks, without their secrets",
		Answer:  "The webhooks",
	})

	CreateWebhook = op[CreateWebhookRequest, WebhookItem](Call{
		ID: "createWebhook", Method: http.MethodPost, Path: "/api/v1/webhooks",
		Area: AreaWebhooks, Permission: "webhooks.write",
		Summary: "Add a webhook; only this response has its secret",
		Answer:  "The webhook",
	})

	DeleteWebhook = op[None, ActionWord](Call{
		ID: "deleteWebhook", Method: http.MethodDelete, Path: "/api/v1/webhooks/{webhookId}",
		Area: AreaWebhooks, Permission: "webhooks.write",
		Summary: "Remove a webhook",
		Answer:  "Removed",
	})

	TestWebhook = op[None, Empty](Call{
		ID: "testWebhook", Method: http.MethodPost, Path: "/api/v1/webhooks/{webhookId}/test",
		Area: AreaWebhooks, Permission: "webhooks.write",
		Summary:     "Send a ping to a webhook",
		Description: "If the receiver refuses the ping, the error has the status of its answer and the time it took.",
		Answer:      "The receiver accepted it",
		Unaudited:   true,
	})

	EnableWebhook = op[None, WebhookItem](Call{
		ID: "enableWebhook", Method: http.MethodPost, Path: "/api/v1/webhooks/{webhookId}/enable",
		Area: AreaWebhooks, Permission: "webhooks.write",
		Summary: "Enable a webhook",
		Answer:  "The webhook",
	})

	DisableWebhook = op[None, WebhookItem](Call{
		ID: "disableWebhook", Method: http.MethodPost, Path: "/api/v1/webhooks/{webhookId}/disable",
		Area: AreaWebhooks, Permission: "webhooks.write",
		Summary: "Disable a webhook until it is enabled again",
		Answer:  "The webhook",
	})

	ListDeadLetters = op[None, DeadLetterList](Call{
		ID: "listDeadLetters", Method: http.MethodGet, Path: "/api/v1/dead_letters",
		Area: AreaWebhooks, Permission: "webhooks.read",
		Summary: "List dead letters, newest first",
		Answer:  "The page",
		Params: []Param{
			page,
			perPage,
		},
	})

	Redeliver = op[None, Empty](Call{
		ID: "redeliver", Method: http.MethodPost, Path: "/api/v1/dead_letters/{letterId}/redeliver",
		Area: AreaWebhooks, Permission: "webhooks.write",
		Summary: "Deliver a dead letter again",
		Answer:  "The receiver accepted it",
	})
)

// Webhook is a URL to which events are sent.
type Webhook struct {
	Id   string `json:"id"`
	Name string `json:"name"`
	Url  string `json:"url"`
	// Signs deliveries as in the Standard Webhooks specification; only in the response that created
	// the webhook
	Secret *string `json:"secret,omitempty"`
	// Event types; default: all events of rollouts, groups and incidents except progress
	Events   *[]string `json:"events,omitempty"`
	Disabled *bool     `json:"disabled,omitempty"`
	// Sequence number of the last event that was handled
	After     int64     `json:"after"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
}

// WebhookItem is the answer of POST /api/v1/webhooks.
type WebhookItem struct {
	Item Webhook `json:"item"`
}

// WebhookList is the answer of GET /api/v1/webhooks.
type WebhookList struct {
	Items []Webhook `json:"items"`
}

// CreateWebhookRequest is the body of POST /api/v1/webhooks.
type CreateWebhookRequest struct {
	Name string `json:"name"`
	Url  string `json:"url" example:"https://hooks.example.com/muster"`
	// As in the Standard Webhooks specification: whsec_ and a key of 24 to 64 bytes in base64; or any
	// text of 16 characters or more, whose bytes are the key. Default: generated
	Secret *string   `json:"secret,omitempty"`
	Events *[]string `json:"events,omitempty"`
}

// DeadLetter is a notification that could not be delivered.
type DeadLetter = fleet.DeadLetter

// DeadLetterList is the answer of GET /api/v1/dead_letters.
type DeadLetterList struct {
	Items   []DeadLetter `json:"items"`
	Total   int          `json:"total"`
	Page    int          `json:"page"`
	PerPage int          `json:"perPage"`
}
