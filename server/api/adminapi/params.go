package adminapi

// The parameters that many operations have.
var (
	page          = Param{Name: "page", Is: 0, Schema: "minimum=1,default=1"}
	perPage       = Param{Name: "perPage", Is: 0, Schema: "minimum=1,maximum=10000,default=20"}
	kuery         = Param{Name: "kuery", Schema: "maxLength=10000", Doc: "A query in KQL; default: all. agent.version and other versions compare with < and > as versions, not as texts. An error repeats the query on a second line and marks the place on a third."}
	showInactive  = Param{Name: "showInactive", Is: false, Schema: "default=false", Doc: "Include inactive and unenrolled agents. A query that names one of these statuses includes its agents anyway, and status:* the unenrolled."}
	fleetDryRun   = Param{Name: "dryRun", Schema: "enum=All", Doc: "All: check everything, and store nothing"}
	fleetValidate = Param{Name: "validate", Schema: "enum=strict|warn,default=strict", Doc: "What happens to fields that the API does not know: the call is refused (strict), or they are dropped with a warning (warn)"}
	fleetVersion  = Param{Name: "apiVersion", Schema: "enum=muster.dev/v1alpha1|muster.dev/v1alpha2,default=muster.dev/v1alpha2", Doc: "Version of the API in which objects are returned"}
)
