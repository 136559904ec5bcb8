package agents_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/agents"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// contract is what agents may rely on at one call.
type contract struct {
	call  string // as in the router
	cases []contractCase
}

// contractCase is one request and its answer.
type contractCase struct {
	// from names the credential, see world, or is the Authorization header itself; "" sends
	// none.
	from string
	// at has the values of the call's path parameters. UPLOAD and SENT stand for uploads of
	// the agent web; all chunks of SENT have been sent.
	at string
	// header is one more, such as "Content-Encoding: gzip".
	header string
	body   any
	status int
	// code is Fleet Server's name of the error; "" for an answer that is none.
	code string
	// want is how the error's message begins, or the shape of the answer; see apptest.Shape.
	// An answer that is not JSON has its text for a shape.
	want string
}

const (
	noKey   = "the Authorization header is missing"
	gone    = "this agent is unenrolled: enrol the host again"
	online  = `{"status":"online"}`
	sees    = `{"stage":"watching","from":"1.0.0","to":"1.1.0","at":"2026-03-03T10:00:00Z"}`
	abc     = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // SHA-256 of "abc"
	wrong   = "the agent's API key is not valid here: enrol the host again"
	noToken = "the enrollment token is not valid here: copy it whole, or make a new one with `muster keys create`"
	noWatch = "this is not the key of the agent's watcher: beacons need the watcher_api_key of the agent's enrolment"
	// policyChange is the answer to a check-in of an agent without its policy.
	policyChange = "ack_token action actions[agent_id created_at data{policy{agent{download{sourceURI ssl{certificate_authorities[]}} features{} " +
		"monitoring{enabled logs metrics traces} protection{enabled signing_key uninstall_token_hash}} id inputs[] output_permissions{} " +
		"revision secret_paths[] signed{data signature}}} id input_type type]"
	notOwn = "this API key belongs to another agent than other"
)

func long(begin string, limit int) string { return begin + strings.Repeat("x", limit) }

func agentContract(t *testing.T) []contract {
	sound := zipped(t, strings.NewReader(online))
	deep := strings.Repeat(`{"a":`, 1001) + "1" + strings.Repeat("}", 1001) // SQLite reads 1,000 levels
	return []contract{
		{"GET /api/status", []contractCase{
			{"", "", "", nil, 200, "", "name status"},
			{"stranger", "", "", nil, 200, "", "name status"},
			{"web", "", "", nil, 200, "", "name status version{number}"},
		}},
		{"POST /api/fleet/agents/enroll", []contractCase{
			{"", "", "", `{"type":"PERMANENT"}`, 401, "ErrNoAuthHeader", noKey},
			{"stranger", "", "", `{"type":"PERMANENT"}`, 401, "ErrUnauthorized", noToken},
			{"web", "", "", `{"type":"PERMANENT"}`, 401, "ErrUnauthorized", noToken},
			{"watcher", "", "", `{"type":"PERMANENT"}`, 401, "ErrUnauthorized", noToken},
			{"admin", "", "", `{"type":"PERMANENT"}`, 401, "ErrUnauthorized", noToken},
			{"token", "", "", `{"type":"VISITOR"}`, 400, "BadRequest", "[request body.type]: "},
			{"token", "", "", `{"type":"PERMANENT","id":"../x"}`, 400, "BadRequest", "[request body.id]: "},
			{"token", "", "", `{"type":"PERMANENT","metadata":{"local":[]}}`, 400, "BadRequest", "[request body.metadata.local]: "},
			{"token", "", "", `{"type":"PERMANENT","id":"web"}`, 403, "AgentNotReplaceable", "an agent with id web exists"},
			{"token", "", "", `{"type":"PERMANENT","id":"web","replace_token":"guess"}`, 403, "AgentNotReplaceable", "an agent with id web exists"},
			{"token", "", "", `{"type":"PERMANENT","metadata":{"local":` + deep + `}}`, 400, "BadRequest", "[request body.metadata.local.a"},
			{"token", "", "", `{"type":"PERMANENT","metadata":{"user_provided":` + deep + `}}`, 400, "BadRequest", "[request body.metadata.user_provided.a"},
			{"token", "", "", long(`{"x":"`, agentapi.MaxEnrollBody), 400, "BadRequest", "[request body]: has more than 131072 bytes"},
			{"token", "", "", `{"type":"PERMANENT","shared_id":"x","metadata":{"local":{"host":{"hostname":"new"}},"user_provided":{},"tags":["b","a","a"]}}`, 200, "", "action item{access_api_key access_api_key_id actions[] active enrolled_at id local_metadata{elastic{agent{id}} host{hostname}} policy_id status tags[] type user_provided_metadata{} watcher_api_key}"},
			{"token", "", "Content-Encoding: br", `{"type":"PERMANENT"}`, 415, "UnsupportedMediaType", "[request header Content-Encoding]: is \"br\", accepted: gzip, identity"},
			{"token", "", "Content-Encoding: gzip", zipped(t, io.LimitReader(spaces{}, agentapi.MaxEnrollBody+1)), 400, "BadRequest", "[request body]: has more than 131072 bytes when unpacked"},
			{"token", "", "Content-Encoding: gzip", zipped(t, strings.NewReader(`{"type":"EPHEMERAL"}`)), 200, "", "action item{access_api_key access_api_key_id actions[] active enrolled_at id local_metadata{elastic{agent{id}}} policy_id status tags[] type user_provided_metadata{} watcher_api_key}"},
			{"token", "", "", `{"type":"EPHEMERAL"}`, 200, "", "action item{access_api_key access_api_key_id actions[] active enrolled_at id local_metadata{elastic{agent{id}}} policy_id status tags[] type user_provided_metadata{} watcher_api_key}"},
		}},
		{"POST /api/fleet/agents/:id/checkin", []contractCase{
			{"", "web", "", online, 401, "ErrNoAuthHeader", noKey},
			{"web+web", "web", "", online, 400, "ErrMalformedHeader", "there is more than one Authorization header"},
			{"Basic YTpi", "web", "", online, 400, "ErrMalformedHeader", "the Authorization header is not of the form"},
			{"YTpi", "web", "", online, 400, "ErrMalformedHeader", "the Authorization header is not of the form"},
			{"ApiKey ???", "web", "", online, 400, "ErrMalformedToken", "the API key is not base64: copy it whole"},
			{"ApiKey aWQ6", "web", "", online, 400, "ErrMalformedToken", "the API key is not of the form base64(id:secret): copy it whole"},
			{"ApiKey YTpiOmM=", "web", "", online, 400, "ErrMalformedToken", "the API key is not of the form base64(id:secret): copy it whole"},
			{"stranger", "web", "", online, 401, "ErrUnauthorized", wrong},
			{"guess", "web", "", online, 401, "ErrUnauthorized", wrong},
			{"token", "web", "", online, 401, "ErrUnauthorized", wrong},
			{"watcher", "web", "", online, 401, "ErrUnauthorized", wrong},
			{"gone", "gone", "", online, 401, "ErrAgentInactive", gone},
			{"web", "other", "", online, 403, "ErrAgentIdentity", notOwn},
			{"web", "web", "Elastic-Api-Version: 2024-01-01", online, 400, "ErrUnsupportedAPIVersion", "[request header Elastic-Api-Version]: is 2024-01-01, this server speaks 2023-06-01"},
			{"web", "web", "Elastic-Api-Version: v1", online, 400, "ErrInvalidAPIVersionFormat", "[request header Elastic-Api-Version]: is v1, this server speaks 2023-06-01"},
			{"web", "web", "", "", 400, "BadRequest", "[request body]: is empty"},
			{"web", "web", "", "status=online", 400, "BadRequest", "[request body]: is not JSON"},
			{"web", "web", "", `{"status":"onl`, 400, "BadRequest", "[request body]: "},
			{"web", "web", "", online + online, 400, "BadRequest", "[request body]: "},
			{"web", "web", "", online + "}", 400, "BadRequest", "[request body]: "},
			{"web", "web", "", "[]", 400, "BadRequest", "[request body]: is a JSON array, want an object"},
			{"web", "web", "", "{}", 400, "BadRequest", "[request body.status]: is missing"},
			{"web", "web", "", `{"status":"online","local_metadata":` + deep + `}`, 400, "BadRequest", "[request body.local_metadata.a.a"},
			{"web", "web", "Content-Encoding: gzip", zipped(t, strings.NewReader(`{"status":"online","components":[`+deep+`]}`)), 400, "BadRequest", "[request body.components[0].a"},
			{"web", "web", "", `{"status":1}`, 400, "BadRequest", "[request body.status]: is a JSON number, want a string"},
			{"web", "web", "", `{"status":"online","local_metadata":"x"}`, 400, "BadRequest", "[request body.local_metadata]: want a JSON object"},
			{"web", "web", "", `{"status":"online","components":{}}`, 400, "BadRequest", "[request body.components]: want a JSON list"},
			{"web", "web", "", `{"status":"online","poll_timeout":"soon"}`, 400, "BadRequest", "[request body.poll_timeout]: "},
			{"web", "web", "", `{"status":"online","upgrade_details":{"state":"UPG_DREAMING"}}`, 400, "BadRequest", "[request body.upgrade_details.state]: is \"UPG_DREAMING\", want one of the UPG_ states"},
			{"web", "web", "", `{"status":"online","upgrade_details":{"metadata":{"download_percent":"half"}}}`, 400, "BadRequest", "[request body.upgrade_details.metadata.download_percent]: "},
			{"web", "web", "", `{"status":"online","upgrade_details":{"metadata":{"download_rate":"3 fpf"}}}`, 400, "BadRequest", "[request body]: download_rate: is \"3 fpf\", want a number or text such as \"10kBps\""},
			{"web", "web", "", `{"status":"online","upgrade":{"rollbacks":[` + strings.Repeat(`{"version":"1.0.0"},`, 32) + `{"version":"1.0.0"}]}}`, 400, "BadRequest", "[request body.upgrade.rollbacks]: has more than 32 elements"},
			{"web", "web", "", `{"status":"online","upgrade":{"rollbacks":[{"version":"1.0.0"},{}]}}`, 400, "BadRequest", "[request body.upgrade.rollbacks[1].version]: "},
			{"web", "web", "", online + strings.Repeat(" ", agentapi.MaxCheckinBody), 400, "BadRequest", "[request body]: has more than 1048576 bytes"},
			{"web", "web", "", long(`{"status":"`, agentapi.MaxCheckinBody), 400, "BadRequest", "[request body]: has more than 1048576 bytes"},
			{"web", "web", "Content-Encoding: gzip", online, 400, "BadRequest", "[request body]: is not gzip"},
			{"web", "web", "Content-Encoding: gzip", sound[:len(sound)-4], 400, "BadRequest", "[request body]: is incomplete: it ends early"},
			{"web", "web", "Content-Encoding: gzip", append(bytes.Clone(sound[:len(sound)-8]), "12345678"...), 400, "BadRequest", "[request body]: gzip: invalid checksum"},
			{"web", "web", "Content-Encoding: gzip", zipped(t, io.LimitReader(spaces{}, agentapi.MaxCheckinBody+1)), 400, "BadRequest", "[request body]: has more than 1048576 bytes when unpacked"},
			{"web", "web", "Content-Encoding: deflate", sound, 415, "UnsupportedMediaType", "[request header Content-Encoding]: is \"deflate\", accepted: gzip, identity"},
			{"web", "web", "Content-Encoding: GZIP", sound, 200, "", policyChange},
			{"upgraded", "upgraded", "", online, 200, "", "ack_token action actions[agent_id created_at data{version} expiration id input_type type]"},
			{"waiting", "waiting", "", online, 200, "", "ack_token action actions[]"},
		}},
		{"GET /api/fleet/agents/:id/home", []contractCase{
			{"", "web", "", nil, 401, "ErrNoAuthHeader", noKey},
			{"stranger", "web", "", nil, 401, "ErrUnauthorized", wrong},
			{"watcher", "web", "", nil, 401, "ErrUnauthorized", wrong},
			{"gone", "gone", "", nil, 401, "ErrAgentInactive", gone},
			{"web", "other", "", nil, 403, "ErrAgentIdentity", notOwn},
			{"web", "web", "", nil, 200, "", "hosts[]"},
		}},
		{"POST /api/fleet/agents/:id/acks", []contractCase{
			{"", "web", "", `{"events":[]}`, 401, "ErrNoAuthHeader", noKey},
			{"watcher", "web", "", `{"events":[]}`, 401, "ErrUnauthorized", wrong},
			{"gone", "gone", "", `{"events":[]}`, 401, "ErrAgentInactive", gone},
			{"web", "other", "", `{"events":[]}`, 403, "ErrAgentIdentity", notOwn},
			{"web", "web", "", "", 400, "BadRequest", "[request body]: is empty"},
			{"web", "web", "", `{"events":[{"data":` + deep + `}]}`, 400, "BadRequest", "[request body.events[0].data.a"},
			{"web", "web", "", `{"events":{}}`, 400, "BadRequest", "[request body.events]: is a JSON object, want a list"},
			{"web", "web", "", `{"events":[{"timestamp":"yesterday"}]}`, 400, "BadRequest", "[request body]: has the time "},
			{"web", "web", "", long(`{"x":"`, agentapi.MaxAcksBody), 400, "BadRequest", "[request body]: has more than 1048576 bytes"},
			{"web", "web", "", `{"events":[]}`, 200, "", "action items[]"},
			{"web", "web", "Content-Encoding: gzip", zipped(t, strings.NewReader(`{"events":[]}`)), 200, "", "action items[]"},
			{"web", "web", "Content-Encoding: identity", `{"events":[]}`, 200, "", "action items[]"},
			{"web", "web", "Content-Encoding: zstd", `{"events":[]}`, 415, "UnsupportedMediaType", "[request header Content-Encoding]: is \"zstd\", accepted: gzip, identity"},
			{"web", "web", "Content-Encoding: gzip", zipped(t, io.LimitReader(spaces{}, agentapi.MaxAcksBody+1)), 400, "BadRequest", "[request body]: has more than 1048576 bytes when unpacked"},
			{"web", "web", "", `{"events":[{"agent_id":"web","action_id":"policy:default:1"}]}`, 200, "", "action items[message status]"},
			{"web", "web", "", `{"events":[{"agent_id":"web","action_id":"policy:default:1"},{"agent_id":"web","action_id":"none"}]}`, 404, "", "action errors items[message status]"},
			{"web", "web", "", `{"events":[{"agent_id":"other","action_id":"none"}]}`, 400, "", "action errors items[message status]"},
		}},
		{"POST /api/fleet/agents/:id/audit/unenroll", []contractCase{
			{"", "web", "", `{"reason":"uninstall"}`, 401, "ErrNoAuthHeader", noKey},
			{"watcher", "web", "", `{"reason":"uninstall"}`, 401, "ErrUnauthorized", wrong},
			{"web", "other", "", `{"reason":"uninstall"}`, 403, "ErrAgentIdentity", notOwn},
			{"gone", "gone", "", `{"reason":"uninstall"}`, 401, "ErrAgentInactive", gone},
			{"web", "web", "", "", 400, "BadRequest", "[request body]: is empty"},
			{"web", "web", "", `{"reason":"bored","timestamp":"2026-03-03T10:00:00Z"}`, 400, "BadRequest", "[request body.reason]: "},
			{"web", "web", "", long(`{"reason":"`, 1<<10), 400, "BadRequest", "[request body]: has more than 1024 bytes"},
			{"other", "other", "", `{"reason":"uninstall","timestamp":"2026-03-03T10:00:00Z"}`, 200, "", ""},
			{"other", "other", "", `{"reason":"orphaned","timestamp":"2026-03-03T10:00:00Z"}`, 200, "", ""},
			{"other", "other", "", `{"reason":"uninstall","timestamp":"2026-03-03T10:00:00Z"}`, 409, "ErrAuditReasonConflict", "the agent is known to be orphaned already"},
		}},
		{"POST /api/fleet/agents/:id/beacon", []contractCase{
			{"", "web", "", sees, 401, "ErrNoAuthHeader", noKey},
			{"web", "web", "", sees, 401, "ErrUnauthorized", noWatch},
			{"token", "web", "", sees, 401, "ErrUnauthorized", noWatch},
			{"watcher", "other", "", sees, 401, "ErrUnauthorized", noWatch},
			{"watcher", "nobody", "", sees, 401, "ErrUnauthorized", noWatch},
			{"guessed watcher", "web", "", sees, 401, "ErrUnauthorized", noWatch},
			{"watcher", "web", "", "", 400, "BadRequest", "[request body]: is empty"},
			{"watcher", "web", "", `{"reason":` + deep + `}`, 400, "BadRequest", "[request body.reason.a"},
			{"watcher", "web", "", "{}", 400, "BadRequest", "[request body.stage]: is \"\", want watching"},
			{"watcher", "web", "", `{"stage":"watching"}`, 400, "BadRequest", "[request body.from]: "},
			{"watcher", "web", "", `{"agent":{"alive":"yes"}}`, 400, "BadRequest", "[request body.agent.alive]: is a JSON string, want true or false"},
			{"watcher", "web", "", `{"stage":"rolled_back","from":"1.0.0","to":"1.1.0","at":"2026-03-03T10:00:00Z"}`, 400, "BadRequest", "[request body.reason]: is missing"},
			{"watcher", "web", "", long(`{"waiting":"`, agentapi.MaxBeaconBody), 400, "BadRequest", "[request body]: has more than 65536 bytes"},
			{"watcher", "web", "Content-Encoding: br", sees, 415, "UnsupportedMediaType", "[request header Content-Encoding]: is \"br\", accepted: gzip, identity"},
			{"watcher", "web", "Content-Encoding: gzip", zipped(t, strings.NewReader(sees)), 204, "", ""},
			{"watcher", "web", "", sees, 204, "", ""},
		}},
		{"POST /api/fleet/uploads", []contractCase{
			{"", "", "", "{}", 401, "ErrNoAuthHeader", noKey},
			{"gone", "", "", "{}", 401, "ErrAgentInactive", gone},
			{"web", "", "", "", 400, "ErrFileInfoBodyRequired", "file info body is required"},
			{"web", "", "", "{", 400, "BadRequest", "[request body]: "},
			{"web", "", "", "7", 400, "BadRequest", "[request body]: "},
			{"web", "", "", `{"file":` + deep + `}`, 400, "BadRequest", "[request body.file.a"},
			{"web", "", "", begun(`"agent_id":"web",`, ""), 400, "ErrAgentIDMissing", "required field agent_id is missing"},
			{"web", "", "", begun(`"agent_id":"web"`, `"agent_id":"other"`), 403, "ErrAgentIdentity", notOwn},
			{"web", "", "", begun(`"action_id":"act"`, `"action_id":" "`), 400, "ErrFieldRequired", "action_id is required: field required"},
			{"web", "", "", begun(`"src":"agent",`, ""), 400, "ErrFieldRequired", "src is required: field required"},
			{"web", "", "", begun(`"src":"agent"`, `"src":"endpoint"`), 400, "BadRequest", "[request body.src]: is \"endpoint\", this server takes the files of \"agent\""},
			{"web", "", "", begun(`"name":"d.zip",`, ""), 400, "ErrFieldRequired", "file.name is required: field required"},
			{"web", "", "", begun(`"name":"d.zip"`, `"name":"../x"`), 400, "BadRequest", "[request body.file.name]: is not the name of a file"},
			{"web", "", "", begun(`"mime_type":"application/zip",`, ""), 400, "ErrFieldRequired", "file.mime_type is required: field required"},
			{"web", "", "", begun(`,"size":3`, ""), 400, "ErrFileSizeRequired", "file.size is required"},
			{"web", "", "", begun(`"size":3`, `"size":0`), 400, "ErrInvalidFileSize", "file.size: 0: invalid filesize"},
			{"web", "", "", begun(`"size":3`, `"size":-1`), 400, "ErrInvalidFileSize", "file.size: -1: invalid filesize"},
			{"web", "", "", begun(`"size":3`, `"size":104857601`), 400, "ErrFileSizeTooLarge", "this file exceeds the maximum allowed file size"},
			{"web", "", "", strings.Repeat(" ", agentapi.MaxUploadBeginBody+1), 413, "ErrPayloadSizeTooLarge", "the body has more than 65536 bytes"},
			{"web", "", "Content-Encoding: br", begun("", ""), 415, "UnsupportedMediaType", "[request header Content-Encoding]: is \"br\", accepted: gzip, identity"},
			{"web", "", "", begun("", ""), 200, "", "chunk_size upload_id"},
		}},
		{"PUT /api/fleet/uploads/:upload/:chunk", []contractCase{
			{"", "UPLOAD/0", "X-Chunk-Sha2: " + abc, "abc", 401, "ErrNoAuthHeader", noKey},
			{"web", "none/0", "X-Chunk-Sha2: " + abc, "abc", 400, "ErrInvalidFileID", "file not found with this ID, it may have been removed"},
			{"other", "UPLOAD/0", "X-Chunk-Sha2: " + abc, "abc", 403, "ErrAgentIdentity", "another agent has begun this upload"},
			{"web", "UPLOAD/1", "X-Chunk-Sha2: " + abc, "abc", 400, "ErrInvalidChunkNum", "invalid chunk number"},
			{"web", "UPLOAD/-1", "X-Chunk-Sha2: " + abc, "abc", 400, "ErrInvalidChunkNum", "invalid chunk number"},
			{"web", "UPLOAD/x", "X-Chunk-Sha2: " + abc, "abc", 400, "BadRequest", "[request path.chunkNum]: is \"x\", want a number"},
			{"web", "UPLOAD/0", "Content-Encoding: gzip", "abc", 415, "UnsupportedMediaType", "[request header Content-Encoding]: is \"gzip\", accepted: identity"},
			{"web", "UPLOAD/0", "", "abc", 400, "BadRequest", "[request header X-Chunk-SHA2]: is \"\", want the SHA-256"},
			{"web", "UPLOAD/0", "X-Chunk-Sha2: " + abc, "abd", 400, "ErrHashMismatch", "hash does not match"},
			{"web", "UPLOAD/0", "X-Chunk-Sha2: " + abc, make([]byte, agentapi.ChunkSize+1), 413, "ErrPayloadSizeTooLarge", "the body has more than 4194304 bytes"},
			{"web", "UPLOAD/0", "X-Chunk-Sha2: " + abc, "abcd", 413, "ErrPayloadSizeTooLarge", "chunk 0 has 4 bytes, the announced file leaves 3 for it"},
		}},
		{"POST /api/fleet/uploads/:upload", []contractCase{
			{"", "UPLOAD", "", "{}", 401, "ErrNoAuthHeader", noKey},
			{"web", "UPLOAD", "", transit([]byte("abc")), 400, "ErrMissingChunks", "file data incomplete, not all chunks were uploaded"},
		}},
		{"PUT /api/fleet/uploads/:upload/:chunk", []contractCase{
			{"web", "UPLOAD/0", "X-Chunk-Sha2: " + abc, "abc", 200, "", ""},
		}},
		{"POST /api/fleet/uploads/:upload", []contractCase{
			{"web", "none", "", transit([]byte("abc")), 400, "ErrInvalidFileID", "file not found with this ID, it may have been removed"},
			{"other", "UPLOAD", "", transit([]byte("abc")), 403, "ErrAgentIdentity", "another agent has begun this upload"},
			{"web", "UPLOAD", "", "{}", 400, "TransitHashRequired", "Transit hash required"},
			{"web", "UPLOAD", "Content-Encoding: br", "{}", 415, "UnsupportedMediaType", "[request header Content-Encoding]: is \"br\", accepted: gzip, identity"},
			{"web", "UPLOAD", "", strings.Repeat(" ", agentapi.MaxUploadEndBody+1), 413, "ErrPayloadSizeTooLarge", "the body has more than 1024 bytes"},
			{"web", "SENT", "", transit([]byte("abc")), 200, "", "status"},
			{"web", "SENT", "", transit([]byte("abc")), 400, "ErrStatusNoUploads", "file closed, not accepting uploads"},
			{"web", "UPLOAD", "", transit([]byte("abd")), 400, "ErrFailValidation", "file contents failed validation"},
			{"web", "UPLOAD", "", transit([]byte("abc")), 400, "ErrStatusNoUploads", "file closed, not accepting uploads"},
		}},
		{"PUT /api/fleet/uploads/:upload/:chunk", []contractCase{
			{"web", "UPLOAD/0", "X-Chunk-Sha2: " + abc, "abc", 400, "ErrUploadStopped", "upload has stopped"},
		}},
		{"GET /api/fleet/file/:file", []contractCase{
			{"", "none", "", nil, 401, "ErrNoAuthHeader", noKey},
			{"token", "none", "", nil, 401, "ErrUnauthorized", wrong},
			{"web", "none", "", nil, 404, "ErrNoFile", "file not found"},
		}},
		{"GET /api/fleet/artifacts/:artifact/:sha2", []contractCase{
			{"", "none/" + abc, "", nil, 401, "ErrNoAuthHeader", noKey},
			{"token", "none/" + abc, "", nil, 401, "ErrUnauthorized", wrong},
			{"web", "none/" + abc, "", nil, 404, "NotFound", "not found"},
		}},
		{"GET /api/agents/upgrades/:version/pgp-public-key", []contractCase{
			{"", "newest", "", nil, 400, "BadRequest", "[request path.version]: is \"newest\", want three numbers such as 8.15.5"},
			{"", "9.1.0", "", nil, 404, "NotFound", "the server has no OpenPGP key"},
		}},
		{"GET /artifacts/:file", []contractCase{
			{"", "x.tar.gz", "", nil, 401, "ErrNoAuthHeader", noKey},
			{"watcher", "x.tar.gz", "", nil, 401, "ErrUnauthorized", wrong},
			{"web", "x.tar.gz", "", nil, 404, "NotFound", "no package x.tar.gz is published"},
			{"web", "muster-agent-1.1.0-linux-amd64.tar.gz", "Range: bytes=0-0", nil, 206, "", "\x1f"},
		}},
		{"GET /api/muster/agent/:platform", []contractCase{
			{"", "linux-amd64", "", nil, 401, "ErrNoAuthHeader", noKey},
			{"ApiKey ???", "linux-amd64", "", nil, 400, "ErrMalformedToken", "the API key is not base64: copy it whole"},
			{"stranger", "linux-amd64", "", nil, 401, "ErrUnauthorized", noToken},
			{"web", "linux-amd64", "", nil, 401, "ErrUnauthorized", noToken},
			{"admin", "linux-amd64", "", nil, 401, "ErrUnauthorized", noToken},
			{"token", "plan9-386", "", nil, 404, "NotFound", "no agent that hosts accept is published for \"plan9-386\": build one with `muster package build --os OS --arch ARCH`"},
			{"token", "linux-amd64", "Range: bytes=0-0", nil, 206, "", "\x1f"},
		}},
		{"GET /artifacts/beats/elastic-agent/:file", []contractCase{
			{"", "elastic-agent-9.1.0-linux-x86_64.tar.gz", "", nil, 404, "NotFound", "no package elastic-agent-9.1.0-linux-x86_64.tar.gz of Elastic's is published"},
		}},
		{"GET /downloads/beats/elastic-agent/:file", []contractCase{
			{"", "elastic-agent-9.1.0-linux-x86_64.tar.gz", "", nil, 404, "NotFound", "no package elastic-agent-9.1.0-linux-x86_64.tar.gz of Elastic's is published"},
		}},
		{"GET /trust/:name", []contractCase{
			{"", "timestamp.json", "", nil, 200, "", "signatures[keyid sig] signed{_type expires meta{snapshot.json{hashes{sha512} length version}} spec_version version}"},
			{"", "9.root.json", "", nil, 404, "NotFound", "9.root.json is not published here"},
		}},
	}
}

// begun is the announcement of an upload with one change.
func begun(old, new string) string {
	return strings.Replace(`{"action_id":"act","agent_id":"web","src":"agent","file":{"name":"d.zip","mime_type":"application/zip","size":3}}`, old, new, 1)
}

// world enrols the agents of the contract and begins uploads. It returns the Authorization
// headers by the names of who sends them, and the ids of the uploads by their names.
func world(t *testing.T, s *apptest.Server) (from map[string]string, ids *strings.Replacer) {
	t.Helper()
	s.Publisher().Publish("1.1.0")
	keys := map[string]string{"token": s.Token, "admin": s.AdminKey, "stranger": fleet.NewCredential().Encode()}
	for _, id := range []string{"web", "other", "gone", "upgraded", "waiting"} {
		got := apptest.Decode[agentapi.EnrollResponse](t, s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token,
			fmt.Sprintf(`{"type":"PERMANENT","id":%q,"replace_token":"secret","metadata":{"local":%s}}`, id, apptest.Metadata(id, "1.0.0")))).Item
		keys[id] = got.AccessAPIKey
		switch id {
		case "web":
			keys["watcher"] = got.WatcherAPIKey
			keys["guess"] = fleet.Credential{ID: s.Fleet(id).AccessKeyID, Secret: "guess"}.Encode()
			keys["guessed watcher"] = fleet.Credential{ID: s.Fleet(id).WatcherKeyID, Secret: "guess"}.Encode()
		case "upgraded", "waiting":
			if _, err := store.UpdateAgent(t.Context(), s.Store.Agents(), id, func(a *fleet.Agent) bool { a.PolicyRev = 1; return true }); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Admin(http.MethodPost, "/api/fleet/agents/gone/unenroll", `{"revoke":true}`)
	upgrade(t, s, &apptest.Agent{ID: "upgraded"}, "1.1.0")
	upload := func(action string) string {
		return apptest.Decode[agentapi.UploadBegun](t, s.Agents(http.MethodPost, agentapi.PathUploads, keys["web"], begun(`"act"`, action))).UploadID
	}
	sent := upload(`"sent"`)
	if got := putChunk(t, s, keys["web"], agentapi.PathUploads+"/"+sent+"/0", abc, []byte("abc")); got.Status != http.StatusOK {
		t.Fatalf("the chunk answered %d %s", got.Status, got.Body)
	}
	from = map[string]string{}
	for name, key := range keys {
		from[name] = "ApiKey " + key
	}
	return from, strings.NewReplacer("UPLOAD", upload(`"begun"`), "SENT", sent)
}

var ginParameter = regexp.MustCompile(`:\w+`)

func TestAgentAPIContract(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	from, ids := world(t, s)
	for _, c := range agentContract(t) {
		method, pattern, _ := strings.Cut(c.call, " ")
		for _, x := range c.cases {
			at := pattern
			for v := range strings.SplitSeq(ids.Replace(x.at), "/") {
				at = strings.Replace(at, ginParameter.FindString(at), v, 1)
			}
			header := http.Header{}
			for who := range strings.SplitSeq(x.from, "+") {
				if value, ok := from[who]; ok {
					who = value
				}
				if who != "" {
					header.Add("Authorization", who)
				}
			}
			if name, value, ok := strings.Cut(x.header, ": "); ok {
				header.Set(name, value)
			}
			got, err := s.Do(t.Context(), apptest.Request{Method: method, URL: s.AgentURL + at, Header: header, Body: x.body})
			if err != nil {
				t.Fatal(err)
			}
			has, e := apptest.Shape(got), got.ErrorBody()
			if has == "" {
				has = string(got.Body)
			}
			ok := got.Status == x.status && e.Code == x.code
			if x.code != "" {
				ok = ok && e.StatusCode == x.status && strings.HasPrefix(e.Message, x.want) && e.Message != "" && has == "error message statusCode"
			} else {
				ok = ok && has == x.want
			}
			if !ok {
				t.Errorf("%s %s from %q with %q and %.60q answered %d %.300s\nwhich is %s, want %d %s %q", method, at, x.from, x.header, x.body, got.Status, got.Body, has, x.status, x.code, x.want)
			}
			if got.Header.Get("Elastic-Api-Version") != agentapi.APIVersion || got.Header.Get("X-Request-Id") == "" {
				t.Errorf("%s %s: the headers are %v", method, at, got.Header)
			}
		}
	}
}

// routesOf returns the routes of the agents' API.
func routesOf() (routes []string) {
	h := &agents.Handlers{API: httpapi.API{Log: slog.New(slog.DiscardHandler)}}
	for _, r := range h.Handler().(*gin.Engine).Routes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	slices.Sort(routes)
	return routes
}

// withoutContract are routes whose accepted or refused requests are tested elsewhere.
var withoutContract = map[string]string{
	"GET /api/status": "refuses nothing: a wrong key gets what no key gets",
	"GET /api/agents/upgrades/:version/pgp-public-key": "testing/suites/elasticagent fetches the key",
	"GET /artifacts/beats/elastic-agent/:file":         "testing/suites/elasticagent fetches packages",
	"GET /downloads/beats/elastic-agent/:file":         "testing/suites/elasticagent fetches packages",
	"GET /trust/:name":                                 "TestSignedMetadataNeedsNoKey",
	"GET /api/fleet/file/:file":                        "there are none",
	"GET /api/fleet/artifacts/:artifact/:sha2":         "there are none",
}

// TestEveryAgentRouteHasAContract fails for a new route without an accepted request in the
// contract, and without a refused one.
func TestEveryAgentRouteHasAContract(t *testing.T) {
	t.Parallel()
	accepted, refused := map[string]bool{}, map[string]bool{}
	for _, c := range agentContract(t) {
		for _, x := range c.cases {
			accepted[c.call] = accepted[c.call] || x.code == ""
			refused[c.call] = refused[c.call] || x.code != ""
		}
	}
	for _, r := range routesOf() {
		r = strings.Replace(r, "HEAD ", "GET ", 1) // the same without the body
		_, elsewhere := withoutContract[r]
		if !accepted[r] && !refused[r] || !elsewhere && !(accepted[r] && refused[r]) {
			t.Errorf("%s has no row that is accepted, or none that is refused, in agentContract", r)
		}
	}
}

// TestAgentCallsCheckInTheOrderOfFleetServer sends requests of which everything is wrong,
// and puts one thing after the other right: the version, the key, the agent, its id.
func TestAgentCallsCheckInTheOrderOfFleetServer(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	from, _ := world(t, s)
	for _, r := range routesOf() {
		method, path, _ := strings.Cut(r, " ")
		if method == http.MethodHead || !strings.HasPrefix(path, "/api/fleet/") || path == agentapi.PathEnroll || strings.HasSuffix(path, "/beacon") {
			continue // these are not an agent's own, see the contract
		}
		for _, step := range []struct{ version, who, code string }{
			{"2030-01-01", "", "ErrUnsupportedAPIVersion"},
			{"", "", "ErrNoAuthHeader"},
			{"", "stranger", "ErrUnauthorized"},
			{"", "gone", "ErrAgentInactive"},
			{"", "web", "ErrAgentIdentity"},
		} {
			if step.code == "ErrAgentIdentity" && !strings.Contains(path, ":id") {
				continue
			}
			at := ginParameter.ReplaceAllString(strings.Replace(path, ":id", "other", 1), "x")
			got, err := s.Do(t.Context(), apptest.Request{
				Method: method, URL: s.AgentURL + at, Header: apptest.Headers("Authorization", from[step.who], "Elastic-Api-Version", step.version), Body: "{",
			})
			if err != nil {
				t.Fatal(err)
			}
			if got.ErrorBody().Code != step.code {
				t.Errorf("%s from %q with version %q answered %d %s, want %s", r, step.who, step.version, got.Status, got.Body, step.code)
			}
		}
	}
}
