package fleet

import "encoding/json"

// DeclaredFleet is a stored object of kind Fleet: what an operator has declared of a part of
// the fleet, and how far the server has brought it there. Only package spec reads Doc, so that
// a store keeps an object of any version of the API, also of a newer server.
type DeclaredFleet struct {
	Name string `json:"name"`
	// Doc is the whole object, as JSON, in the version that its apiVersion names.
	Doc      json.RawMessage `json:"doc"`
	Revision int64           `json:"-"`
}
