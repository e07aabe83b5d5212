// Package pumice is a client of Pumice, the scheduling-policy decision service.
//
// [Dial] makes a [Client]. A decision call ([Client.Filter], [Client.Score], …) returns a [Reply] or an error. While the
// service is unavailable it returns an error, unless [Options.Fallback] chooses a reply for that call. A response in which
// an item has a problem instead of a result comes with a [*ProblemError].
//
// A [Feed] keeps the service's cluster state up to date. A [Session] is one scheduling cycle.
package pumice
