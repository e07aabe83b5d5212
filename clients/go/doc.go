// Package pumice is a client of Pumice, the scheduling-policy decision service.
//
// [Dial] connects. Questions ([Client.Filter], [Client.Score], …) return a [Reply], which also says who answered: the
// service, or, when it is away, the answer that the caller has chosen for that call (see [Away]). A [Feed] keeps the
// service's state up to date, a [Session] is one scheduling cycle.
package pumice
