package fleet

// The objects that agents' policies are made from, with Kibana's names for their fields.
// Values that are secret are in the fields of their own type, and sealed in the store: see
// package infra.

// FleetServerHost is where agents check in.
type FleetServerHost struct {
	ID            string   `json:"id"`
	Name          string   `json:"name"`
	HostURLs      []string `json:"host_urls"`
	Default       bool     `json:"is_default"`
	Internal      *bool    `json:"is_internal,omitempty"`
	Preconfigured bool     `json:"is_preconfigured"`
	ProxyID       string   `json:"proxy_id,omitempty"`
	SSL           *HostSSL `json:"ssl,omitempty"`
	Sealed        []byte   `json:"sealed,omitempty" schema:"-"`
	Revision      int64    `json:"-"`
}

// HostSSL has the certificates of a Fleet Server: its own, those it uses towards
// Elasticsearch, and those its agents use towards it.
type HostSSL struct {
	CertificateAuthorities      []string `json:"certificate_authorities,omitempty"`
	Certificate                 string   `json:"certificate,omitempty"`
	Key                         string   `json:"key,omitempty"`
	ESCertificateAuthorities    []string `json:"es_certificate_authorities,omitempty"`
	ESCertificate               string   `json:"es_certificate,omitempty"`
	ESKey                       string   `json:"es_key,omitempty"`
	AgentCertificateAuthorities []string `json:"agent_certificate_authorities,omitempty"`
	AgentCertificate            string   `json:"agent_certificate,omitempty"`
	AgentKey                    string   `json:"agent_key,omitempty"`
	ClientAuth                  string   `json:"client_auth,omitempty"` // optional, required or none
}

// DownloadSource is where agents fetch packages.
type DownloadSource struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Host     string     `json:"host"`
	Default  bool       `json:"is_default"`
	ProxyID  string     `json:"proxy_id,omitempty"`
	SSL      *ClientSSL `json:"ssl,omitempty"`
	Sealed   []byte     `json:"sealed,omitempty" schema:"-"`
	Revision int64      `json:"-"`
}

// ClientSSL has the certificates that an agent uses towards a server: inline PEM, or paths
// on the agent's host.
type ClientSSL struct {
	CertificateAuthorities []string `json:"certificate_authorities,omitempty"`
	Certificate            string   `json:"certificate,omitempty"`
	Key                    string   `json:"key,omitempty"`
	VerificationMode       string   `json:"verification_mode,omitempty"` // of outputs: full, none, certificate or strict
}

// FleetProxy is a proxy that agents use.
type FleetProxy struct {
	ID                     string         `json:"id"`
	Name                   string         `json:"name"`
	URL                    string         `json:"url"`
	Headers                map[string]any `json:"proxy_headers,omitempty"` // strings, numbers and booleans
	CertificateAuthorities string         `json:"certificate_authorities,omitempty"`
	Certificate            string         `json:"certificate,omitempty"`
	CertificateKey         string         `json:"certificate_key,omitempty"`
	Preconfigured          bool           `json:"is_preconfigured"`
	Sealed                 []byte         `json:"sealed,omitempty" schema:"-"`
	Revision               int64          `json:"-"`
}

// OutputType is where an output sends data.
type OutputType string

// The types of outputs.
const (
	OutputElasticsearch       OutputType = "elasticsearch"
	OutputRemoteElasticsearch OutputType = "remote_elasticsearch"
	OutputLogstash            OutputType = "logstash"
	OutputKafka               OutputType = "kafka"
)

// Output is where agents send their data.
type Output struct {
	ID                   string         `json:"id"`
	Name                 string         `json:"name"`
	Type                 OutputType     `json:"type"`
	Hosts                []string       `json:"hosts"`
	Default              bool           `json:"is_default"`
	DefaultMonitoring    bool           `json:"is_default_monitoring"`
	Internal             *bool          `json:"is_internal,omitempty"`
	Preconfigured        *bool          `json:"is_preconfigured,omitempty"`
	CASHA256             string         `json:"ca_sha256,omitempty"`
	CATrustedFingerprint string         `json:"ca_trusted_fingerprint,omitempty"`
	ConfigYAML           string         `json:"config_yaml,omitempty"`
	SSL                  *ClientSSL     `json:"ssl,omitempty"`
	ProxyID              string         `json:"proxy_id,omitempty"`
	Shipper              *OutputShipper `json:"shipper,omitempty"`
	AllowEdit            []string       `json:"allow_edit,omitempty"`

	// Of Elasticsearch, also remote.

	Preset             string `json:"preset,omitempty"` // balanced, custom, throughput, scale or latency
	WriteToLogsStreams *bool  `json:"write_to_logs_streams,omitempty"`

	// Of remote Elasticsearch.

	ServiceToken                string `json:"service_token,omitempty"`
	KibanaURL                   string `json:"kibana_url,omitempty"`
	KibanaAPIKey                string `json:"kibana_api_key,omitempty"`
	SyncIntegrations            *bool  `json:"sync_integrations,omitempty"`
	SyncUninstalledIntegrations *bool  `json:"sync_uninstalled_integrations,omitempty"`

	// Of Kafka.

	Version          string         `json:"version,omitempty"`
	Key              string         `json:"key,omitempty"`
	Compression      string         `json:"compression,omitempty"` // gzip, snappy, lz4 or none
	CompressionLevel *float64       `json:"compression_level,omitempty"`
	ClientID         string         `json:"client_id,omitempty"`
	AuthType         string         `json:"auth_type,omitempty"`       // none, user_pass, ssl or kerberos
	ConnectionType   string         `json:"connection_type,omitempty"` // plaintext or encryption
	Username         string         `json:"username,omitempty"`
	Password         string         `json:"password,omitempty"`
	SASL             *OutputSASL    `json:"sasl,omitempty"`
	Partition        string         `json:"partition,omitempty"` // random, round_robin or hash
	Random           *OutputEvents  `json:"random,omitempty"`
	RoundRobin       *OutputEvents  `json:"round_robin,omitempty"`
	Hash             *OutputHash    `json:"hash,omitempty"`
	Topic            string         `json:"topic,omitempty"`
	Headers          []OutputHeader `json:"headers,omitempty"`
	Timeout          *float64       `json:"timeout,omitempty"`        // seconds
	BrokerTimeout    *float64       `json:"broker_timeout,omitempty"` // seconds
	RequiredAcks     *int           `json:"required_acks,omitempty"`  // 1, 0 or -1

	Sealed   []byte `json:"sealed,omitempty" schema:"-"`
	Revision int64  `json:"-"`
}

// OutputShipper has the queue of an output.
type OutputShipper struct {
	DiskQueueEnabled            *bool    `json:"disk_queue_enabled"`
	DiskQueuePath               *string  `json:"disk_queue_path"`
	DiskQueueMaxSize            *float64 `json:"disk_queue_max_size"`
	DiskQueueEncryptionEnabled  *bool    `json:"disk_queue_encryption_enabled"`
	DiskQueueCompressionEnabled *bool    `json:"disk_queue_compression_enabled"`
	CompressionLevel            *float64 `json:"compression_level"`
	Loadbalance                 *bool    `json:"loadbalance"`
	MemQueueEvents              *float64 `json:"mem_queue_events"`
	QueueFlushTimeout           *float64 `json:"queue_flush_timeout"`
	MaxBatchBytes               *float64 `json:"max_batch_bytes"`
}

// OutputSASL is how Kafka checks a password.
type OutputSASL struct {
	Mechanism string `json:"mechanism,omitempty"` // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
}

// OutputEvents is how many events go to one partition of Kafka before the next.
type OutputEvents struct {
	GroupEvents *float64 `json:"group_events,omitempty"`
}

// OutputHash is the field that chooses the partition of Kafka.
type OutputHash struct {
	Hash   string `json:"hash,omitempty"`
	Random *bool  `json:"random,omitempty"`
}

// OutputHeader is a header of messages to Kafka.
type OutputHeader struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// PolicyName returns the name of the output in agents' policies.
func (o *Output) PolicyName() string {
	if o.Default && o.Type == OutputElasticsearch {
		return "default"
	}
	return o.ID
}

// Secrets returns the addresses of the secret values, by their paths.
func (h *FleetServerHost) Secrets() map[string]*string {
	if h.SSL == nil {
		return nil
	}
	return map[string]*string{"ssl.key": &h.SSL.Key, "ssl.es_key": &h.SSL.ESKey, "ssl.agent_key": &h.SSL.AgentKey}
}

// Secrets returns the addresses of the secret values, by their paths.
func (s *DownloadSource) Secrets() map[string]*string {
	if s.SSL == nil {
		return nil
	}
	return map[string]*string{"ssl.key": &s.SSL.Key}
}

// Secrets returns the addresses of the secret values, by their paths.
func (p *FleetProxy) Secrets() map[string]*string {
	return map[string]*string{"certificate_key": &p.CertificateKey}
}

// Secrets returns the addresses of the secret values, by their paths.
func (o *Output) Secrets() map[string]*string {
	m := map[string]*string{"service_token": &o.ServiceToken, "kibana_api_key": &o.KibanaAPIKey, "password": &o.Password}
	if o.SSL != nil {
		m["ssl.key"] = &o.SSL.Key
	}
	return m
}
