package elastic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v8/esapi"
	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// DefaultPrefix is the default of Options.Prefix.
const DefaultPrefix = "muster-"

const (
	// dialTimeout bounds connecting to a node, including its TLS handshake. If a node does
	// not respond, there is time left for the next one.
	dialTimeout = 5 * time.Second
	// maxConns bounds the connections to a node. A server has some hundred concurrent calls
	// at its peak, and more connections do not make a node faster.
	maxConns = 64
	// setupConcurrency bounds the concurrent requests of Open. Each changes the state of the
	// cluster, and the master handles one at a time.
	setupConcurrency = 6
)

// keepAlive detects within callTimeout that a peer has disappeared. With the system's
// defaults that takes minutes.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 3}

// Options of Open. URLs are required; at most one of Username, APIKey and
// ServiceToken may be given.
type Options struct {
	// URLs are those of nodes, or of a proxy before them, without credentials.
	URLs []string
	// Prefix begins the names of all indices; empty means DefaultPrefix.
	Prefix string

	Username, Password string // basic authentication
	APIKey             string // base64(id:key), as Elasticsearch encodes it
	ServiceToken       string

	CACert            []byte           // PEM of the authorities to trust; nil means those of the system
	CAFingerprint     string           // SHA-256 of the authority's certificate, in hexadecimal
	ClientCertificate *tls.Certificate // presented to the nodes

	// Loading allows opening a store that is being filled by an unfinished migration.
	Loading bool
	// AsIs opens the indices as they are, whatever their schema: Open creates none and
	// updates no mapping. It is for reading, and for documents whose kind has not changed.
	AsIs bool
}

// fingerprintPattern matches a SHA-256 in hexadecimal.
var fingerprintPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// tlsConfig returns the TLS configuration. The library's own support of fingerprints would
// not present a client certificate, and would trust a node that sends the authority's
// certificate without being signed by it.
func tlsConfig(opts Options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if opts.ClientCertificate != nil {
		config.Certificates = []tls.Certificate{*opts.ClientCertificate}
	}
	if opts.CACert != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(opts.CACert) {
			return nil, errors.New("elasticsearch: the file of the authority has no certificate in PEM: name another")
		}
	}
	if opts.CAFingerprint == "" {
		return config, nil
	}
	want := strings.ToLower(strings.ReplaceAll(opts.CAFingerprint, ":", ""))
	if !fingerprintPattern.MatchString(want) {
		return nil, errors.New("elasticsearch: the fingerprint is not a SHA-256 in hexadecimal: use the one that Elasticsearch printed when it was set up")
	}
	// VerifyConnection verifies the chain, with the authority that the node sends.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(s tls.ConnectionState) error {
		verify := x509.VerifyOptions{DNSName: s.ServerName, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
		found := false
		for _, c := range s.PeerCertificates {
			if sum := sha256.Sum256(c.Raw); hex.EncodeToString(sum[:]) == want {
				verify.Roots.AddCert(c)
				found = true
				continue
			}
			verify.Intermediates.AddCert(c)
		}
		if !found {
			return errors.New("no certificate of the node has the trusted fingerprint")
		}
		_, err := s.PeerCertificates[0].Verify(verify)
		return err
	}
	return config, nil
}

// prefixPattern matches valid prefixes of index names.
var prefixPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

func (o Options) check() ([]*url.URL, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("elasticsearch: no URL is given: name at least one node, such as https://es1.example:9200")
	}
	var urls []*url.URL
	for _, s := range o.URLs {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, errors.New("elasticsearch: a URL is not of the form https://host:9200: correct it")
		}
		if u.User != nil {
			return nil, fmt.Errorf("elasticsearch: the URL of %s has credentials in it: give them separately, in a file or the environment", u.Host)
		}
		urls = append(urls, u)
	}
	given := 0
	for _, s := range []string{o.Username, o.APIKey, o.ServiceToken} {
		if s != "" {
			given++
		}
	}
	if given > 1 {
		return nil, errors.New("elasticsearch: more than one of user name, API key and service token is given: give only one")
	}
	if (o.Username == "") != (o.Password == "") {
		return nil, errors.New("elasticsearch: of user name and password one is given alone: give both")
	}
	if !prefixPattern.MatchString(o.Prefix) {
		return nil, fmt.Errorf("elasticsearch: the prefix %q cannot begin the name of an index: use lower-case letters, digits, - and _", o.Prefix)
	}
	return urls, nil
}

// Open connects to Elasticsearch, and creates the indices or updates their mappings. It
// refuses indices of a newer Muster and does not change them.
func Open(ctx context.Context, opts Options) (*Store, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	s := storeOf(c)
	s.actionSequence, s.eventSequence = newSequence(c, indexActions), newSequence(c, indexEvents)
	if !opts.AsIs {
		err = c.prepare(ctx)
	}
	if err == nil && !opts.Loading {
		err = s.refuseUnfinished(ctx)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return s, nil
}

func connect(opts Options) (*client, error) {
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	urls, err := opts.check()
	if err != nil {
		return nil, err
	}
	network := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		MaxConnsPerHost:     maxConns,
		MaxIdleConnsPerHost: maxConns,
		// Shorter than the idle timeouts of common proxies and firewalls.
		IdleConnTimeout: 50 * time.Second,
	}
	if network.TLSClientConfig, err = tlsConfig(opts); err != nil {
		return nil, err
	}
	options := []elastictransport.Option{
		elastictransport.WithUserAgent("muster"), elastictransport.WithURLs(urls...), elastictransport.WithTransport(network),
		// client.try retries only requests for which that is safe.
		elastictransport.WithDisableRetry(),
	}
	switch {
	case opts.Username != "":
		options = append(options, elastictransport.WithBasicAuth(opts.Username, opts.Password))
	case opts.ServiceToken != "":
		options = append(options, elastictransport.WithServiceToken(opts.ServiceToken))
	case opts.APIKey != "":
		// The library writes the scheme as APIKey, which some proxies refuse.
		options = append(options, elastictransport.WithHeader(http.Header{"Authorization": {"ApiKey " + opts.APIKey}}))
	}
	transport, err := elastictransport.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("elasticsearch: the connection cannot be set up: %w", err)
	}
	return newClient(transport, network, len(urls), opts.Prefix), nil
}

// prepare creates missing indices and updates the mappings of older ones.
func (c *client) prepare(ctx context.Context) error {
	versions, err := c.versions(ctx)
	if err != nil {
		return err
	}
	for index, v := range versions {
		if v > schemaVersion {
			e := fleet.Errorf(fleet.Internal, "the index %s was created by a newer Muster (schema %d, this program supports up to %d): run that version or a later one; nothing has been changed", c.name(index), v, schemaVersion)
			e.Err = store.ErrNewer
			return e
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(setupConcurrency)
	for _, index := range slices.Sorted(maps.Keys(schemas)) {
		if v, ok := versions[index]; ok && v == schemaVersion {
			continue
		}
		all.Go(func() error {
			// The template comes first: if an index is lost, a write creates it correctly.
			if err := c.putTemplate(ctx, index, schemaVersion); err != nil {
				return err
			}
			if _, ok := versions[index]; ok {
				return c.putMapping(ctx, index, schemaVersion)
			}
			return c.createIndex(ctx, index)
		})
	}
	return all.Wait()
}

// storeOf returns a store with only its collections.
func storeOf(c *client) *Store {
	s := &Store{c: c}
	s.Typed = s.Documents
	return s
}

// CheckDowngrade returns why indices of this program's schema cannot be taken back to an
// earlier one.
func CheckDowngrade(to int) error {
	if to < oldestReader {
		return fmt.Errorf("the schema %d in Elasticsearch has no way back to %d: restore a snapshot from before the upgrade instead", schemaVersion, to)
	}
	return nil
}

// Downgrade lets servers of an earlier schema open the indices. All servers must have
// stopped. The indices keep the fields that those do not know.
func Downgrade(ctx context.Context, opts Options, to int) error {
	if err := CheckDowngrade(to); err != nil {
		return err
	}
	c, err := connect(opts)
	if err != nil {
		return err
	}
	defer c.close()
	versions, err := c.versions(ctx)
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(setupConcurrency)
	for index := range versions {
		all.Go(func() error {
			if err := c.putTemplate(ctx, index, to); err != nil {
				return err
			}
			return c.putMapping(ctx, index, to)
		})
	}
	return all.Wait()
}

// versions returns the schema versions of the existing indices.
func (c *client) versions(ctx context.Context) (map[string]int, error) {
	var names []string
	for index := range schemas {
		names = append(names, c.name(index))
	}
	yes := true
	var answer map[string]struct {
		Mappings struct {
			Meta struct {
				Version *int `json:"muster_schema"`
			} `json:"_meta"`
		} `json:"mappings"`
	}
	err := c.do(ctx, call{op: "look at the indices", timeout: bulkTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.IndicesGetMappingRequest{Index: names, IgnoreUnavailable: &yes, MasterTimeout: masterTimeout}
	}}, &answer)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for index := range schemas {
		found, ok := answer[c.name(index)]
		if !ok {
			continue
		}
		if found.Mappings.Meta.Version == nil {
			return nil, fleet.Errorf(fleet.Internal, "the index %s was not created by Muster: choose another prefix, or remove it", c.name(index))
		}
		out[index] = *found.Mappings.Meta.Version
	}
	return out, nil
}

func (c *client) putTemplate(ctx context.Context, index string, schema int) error {
	return c.setUp(ctx, "put the template "+c.name(index), body{
		"index_patterns": []string{c.name(index)},
		// Above the priorities that users give templates for all their indices.
		"priority": 500,
		"version":  schema,
		"_meta":    body{"managed_by": "muster", "muster_schema": schema},
		"template": body{"settings": indexSettings(), "mappings": mappings(index, schema)},
	}, func(r *bytes.Reader) esapi.Request {
		return esapi.IndicesPutIndexTemplateRequest{Name: c.name(index), Body: r, MasterTimeout: masterTimeout}
	})
}

func (c *client) putMapping(ctx context.Context, index string, schema int) error {
	return c.setUp(ctx, "update the mapping of the index "+c.name(index), mappings(index, schema), func(r *bytes.Reader) esapi.Request {
		return esapi.IndicesPutMappingRequest{Index: []string{c.name(index)}, Body: r, MasterTimeout: masterTimeout, Timeout: masterTimeout}
	})
}

func (c *client) createIndex(ctx context.Context, index string) error {
	err := c.setUp(ctx, "create the index "+c.name(index), body{}, func(r *bytes.Reader) esapi.Request {
		return esapi.IndicesCreateRequest{Index: c.name(index), Body: r, MasterTimeout: masterTimeout, Timeout: masterTimeout}
	})
	var refused *refusal
	if errors.As(err, &refused) && refused.kind == "resource_already_exists_exception" {
		return nil // another server was first
	}
	return err
}

// setUp sends a declarative request, which may be repeated.
func (c *client) setUp(ctx context.Context, op string, b body, request func(*bytes.Reader) esapi.Request) error {
	encoded, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return c.do(ctx, call{op: op, timeout: bulkTimeout, repeatable: true, request: func() esapi.Request {
		return request(bytes.NewReader(encoded))
	}}, nil)
}
