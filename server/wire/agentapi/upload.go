package agentapi

// An agent sends a file in three steps: it announces it with an [UploadBegin], puts each
// chunk, numbered from 0, to PathUploads/<upload id>/<number>, and posts an [UploadEnd] to
// PathUploads/<upload id>.

const (
	// ChunkSize is the size of each chunk but the last.
	ChunkSize = 4 << 20
	// HeaderChunk has the SHA-256 of a chunk in hexadecimal.
	HeaderChunk = "X-Chunk-SHA2"
	// MaxUploadBeginBody and MaxUploadEndBody bound the bodies. Agents announce a file in less than
	// 1 KiB; a Fleet Server, which stores all of it, accepts 5 MiB.
	MaxUploadBeginBody = 64 << 10
	MaxUploadEndBody   = 1 << 10
	// UploadSource is the source of a file that the agent itself sends.
	UploadSource = "agent"
)

// UploadBegin announces a file. Fleet Server keeps further fields, which Muster ignores.
type UploadBegin struct {
	ActionID string     `json:"action_id"`
	AgentID  string     `json:"agent_id"`
	Source   string     `json:"src"`
	File     UploadFile `json:"file"`
}

// UploadFile describes the file.
type UploadFile struct {
	Name     string `json:"name"`
	Ext      string `json:"ext,omitempty"`
	MIMEType string `json:"mime_type"`
	Size     *int64 `json:"size"`
}

// UploadBegun is the answer to an UploadBegin.
type UploadBegun struct {
	ChunkSize int64  `json:"chunk_size"`
	UploadID  string `json:"upload_id"`
}

// UploadEnd ends an upload.
type UploadEnd struct {
	TransitHash struct {
		// SHA256 is the SHA-256, in hexadecimal, of the concatenated digests of the chunks.
		SHA256 string `json:"sha256"`
	} `json:"transithash"`
}

// DiagnosticsAck is the data of the acknowledgement of a REQUEST_DIAGNOSTICS.
type DiagnosticsAck struct {
	UploadID string `json:"upload_id"`
}
