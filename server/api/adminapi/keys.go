package adminapi

import (
	"net/http"
	"time"
)

// The operations of the area keys.
var (
	ListEnrollmentKeys = op[None, EnrollmentKeyList](Call{
		ID: "listEnrollmentKeys", Method: http.MethodGet, Path: "/api/fleet/enrollment_api_keys",
		Area: AreaKeys, Permission: "enrollment_keys.read",
		Summary: "List enrollment keys, newest first",
		Answer:  "The keys",
		Params: []Param{
			page,
			{Name: "perPage", Is: 0, Schema: "minimum=0,maximum=10000,default=20"},
			kuery,
		},
	})

	CreateEnrollmentKey = op[CreateEnrollmentKeyRequest, EnrollmentKeyCreated](Call{
		ID: "createEnrollmentKey", Method: http.MethodPost, Path: "/api/fleet/enrollment_api_keys",
		Area: AreaKeys, Permission: "enrollment_keys.write",
		Summary: "Create an enrollment key",
		Answer:  "The key",
	})

	GetEnrollmentKey = op[None, EnrollmentKeyItem](Call{
		ID: "getEnrollmentKey", Method: http.MethodGet, Path: "/api/fleet/enrollment_api_keys/{keyId}",
		Area: AreaKeys, Permission: "enrollment_keys.read",
		Summary: "Get an enrollment key",
		Answer:  "The key",
	})

	RevokeEnrollmentKey = op[None, ActionWord](Call{
		ID: "revokeEnrollmentKey", Method: http.MethodDelete, Path: "/api/fleet/enrollment_api_keys/{keyId}",
		Area: AreaKeys, Permission: "enrollment_keys.write",
		Summary: "Revoke an enrollment key; agents enrolled with it stay enrolled",
		Answer:  "Revoked",
		Params: []Param{
			{Name: "forceDelete", Is: false, Schema: "default=false", Doc: "Delete the key instead of only revoking it"},
		},
	})
)

// EnrollmentKey is a key with which hosts enrol.
type EnrollmentKey struct {
	Id       string `json:"id"`
	Active   bool   `json:"active"`
	ApiKeyId string `json:"api_key_id"`
	// base64(id:secret). After the creation it is absent if the server cannot read it: the key was
	// made with enrollment.readable_keys: false, or the server lacks the encryption key.
	ApiKey    *string    `json:"api_key,omitempty"`
	Name      string     `json:"name"`
	PolicyId  string     `json:"policy_id"`
	CreatedAt time.Time  `json:"created_at"`
	ExpireAt  *time.Time `json:"expire_at,omitempty"`
}

// EnrollmentKeyItem is the answer of GET /api/fleet/enrollment_api_keys/{keyId}.
type EnrollmentKeyItem struct {
	Item EnrollmentKey `json:"item"`
}

// EnrollmentKeyCreated is the answer of POST /api/fleet/enrollment_api_keys.
type EnrollmentKeyCreated struct {
	Action string        `json:"action" example:"created"`
	Item   EnrollmentKey `json:"item"`
}

// EnrollmentKeyList is the answer of GET /api/fleet/enrollment_api_keys.
type EnrollmentKeyList struct {
	Items []EnrollmentKey `json:"items"`
	// The same as items, as in Kibana
	List    []EnrollmentKey `json:"list"`
	Total   int             `json:"total"`
	Page    int             `json:"page"`
	PerPage int             `json:"perPage"`
}

// CreateEnrollmentKeyRequest is the body of POST /api/fleet/enrollment_api_keys.
type CreateEnrollmentKeyRequest struct {
	// May be empty
	Name     *string `json:"name,omitempty"`
	PolicyId string  `json:"policy_id"`
	// How long the key enrols hosts: a number of d, h, m or s, such as 30d or 24h; default: without
	// end
	Expiration *string `json:"expiration,omitempty" schema:"maxLength=20"`
}
