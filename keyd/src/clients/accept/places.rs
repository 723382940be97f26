//! Places: which clients have one, and which lose it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_ring::Closing;
use rustix::event::epoll::{self, EventFlags};

use crate::clients::accept::{Acceptor, FEW_CLIENTS, HUNG_UP, IDLE};
use crate::clients::client::{BRIEFLY_IDLE, Client};
use crate::fault::{KEPT_REQUESTS, is_planted};
use crate::keys::access::Account;
use crate::system::log::log_all;

/// Time in the queue after which a connection takes the place of any client without a request in
/// flight. Before, it takes the place of a client that has been idle for [`BRIEFLY_IDLE`] only.
pub(super) const LONG_WAIT: Duration = Duration::from_millis(100);

impl Acceptor {
    /// Returns whether there is a place for one more process of this account. May disconnect an
    /// idle client. `waited` is the time in the queue.
    pub(super) fn finds_place(&mut self, account: Account, waited: Duration) -> bool {
        let places = self.places();
        let used: usize = places.values().sum();
        let own = places.get(&account).copied().unwrap_or(0);
        // An account never has more places than are left to the others.
        let is_free = own < self.configuration.max_clients_per_user
            && own < self.configuration.max_clients.saturating_sub(used);
        if is_free {
            if used >= FEW_CLIENTS
                && let Some(idle) = self.idle(IDLE, None).first()
            {
                self.disconnect_idle(&[*idle]);
            }
            return true;
        }
        // The place comes from the account with most places, if that account still has at least as
        // many places as this one afterwards, or from this account itself.
        let most = places.iter().max_by_key(|(_, count)| **count);
        let most = most.filter(|(_, count)| **count > own + 1);
        let most = most.filter(|_| own < self.configuration.max_clients_per_user);
        let givers = [most.map(|(account, _)| *account), Some(account)];
        let mut givers = givers.into_iter().flatten();
        let at_least = match waited < LONG_WAIT {
            true => BRIEFLY_IDLE,
            false => Duration::ZERO,
        };
        let idle = givers.find_map(|giver| self.idle(at_least, Some(giver)).first().copied());
        if let Some(idle) = idle {
            self.disconnect_idle(&[idle]);
        }
        idle.is_some()
    }

    /// Returns the number of places of each account. A disconnected client keeps its place until
    /// its last request is gone.
    pub(super) fn places(&self) -> HashMap<Account, usize> {
        let mut places = HashMap::new();
        let admitted = self.pending.values().filter(|own| own.is_admitted());
        let leaving = match is_planted(KEPT_REQUESTS) {
            true => &[],
            false => &self.leaving[..],
        };
        let clients = self.clients.values().chain(leaving);
        let accounts = clients.map(|own| own.account);
        for account in accounts.chain(admitted.map(|own| own.account)) {
            *places.entry(account).or_insert(0) += 1;
        }
        places
    }

    /// Returns the numbers of the clients that have been idle for at least `at_least`, longest
    /// first. `of` limits them to one account.
    pub(super) fn idle(&self, at_least: Duration, of: Option<Account>) -> Vec<u64> {
        let now = Instant::now();
        let clients = self.clients.iter();
        let clients = clients.filter(|(_, own)| of.is_none_or(|account| own.account == account));
        let idle = clients.filter_map(|(number, own)| Some((own.idle(now)?, *number)));
        let mut idle: Vec<_> = idle.filter(|(time, _)| *time >= at_least).collect();
        idle.sort_unstable_by(|one, other| other.cmp(one));
        idle.into_iter().map(|(_, number)| number).collect()
    }

    /// Disconnects idle clients. Each connects again with its next request. A client that makes a
    /// request at this moment makes it again.
    pub(super) fn disconnect_idle(&mut self, numbers: &[u64]) {
        for client in self.disconnect(numbers, Closing::Idle) {
            self.idle_processes.note(client.peer);
        }
        log_all(self.idle_processes.line(Instant::now()));
    }

    /// Above [`FEW_CLIENTS`] clients, disconnects those with the longest idle times.
    pub(super) fn disconnect_long_idle(&mut self) {
        let too_many = self.clients.len().saturating_sub(FEW_CLIENTS);
        if too_many > 0 {
            let mut idle = self.idle(IDLE, None);
            idle.truncate(too_many);
            self.disconnect_idle(&idle);
        }
    }

    /// Disconnects clients, and returns them.
    pub(super) fn disconnect(&mut self, numbers: &[u64], why: Closing) -> Vec<Arc<Client>> {
        let gone = numbers
            .iter()
            .filter_map(|number| self.clients.remove(number));
        let gone: Vec<_> = gone.collect();
        for client in &gone {
            // A request in flight may keep the socket open.
            let _ = epoll::delete(&self.epoll, &client.stream);
            client.leave(why);
        }
        if !gone.is_empty() {
            let in_flight = gone.iter().filter(|own| own.ring.in_flight() > 0);
            self.leaving.extend(in_flight.cloned());
            self.served
                .change(|clients| clients.retain(|client| !client.is_gone()));
        }
        gone
    }

    /// Removes the clients that have hung up.
    pub(super) fn remove_ended(&mut self, events: &HashMap<u64, EventFlags>) {
        let gone = events.iter().filter(|(_, event)| event.intersects(HUNG_UP));
        let gone: Vec<u64> = gone.map(|(number, _)| *number).collect();
        for client in self.disconnect(&gone, Closing::Unsaid) {
            let (served, refused) = client.counts();
            let faults = client.ring.faults();
            let (pid, user) = (client.peer.process, client.peer.user);
            let bad: u64 = [faults.malformed, faults.repeated].iter().sum();
            let line = format_args!(
                "process {pid} of user {user} has ended: {served} requests, {refused} refused, \
                 {bad} bad"
            );
            self.journal.log(Some(client.account), line);
        }
    }
}
