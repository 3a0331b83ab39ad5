use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iggy::prelude::*;

use super::connect;
use super::ledger::Ledger;
use super::producer::reconnect;

/// Streams that live at the same time.
const ALIVE: usize = 10;

/// Creates streams and deletes the oldest ones, and writes down what it is told.
pub(crate) async fn change(string: String, ledger: Arc<Ledger>, stopping: Arc<AtomicBool>) {
    let mut client = connect(&string).await;
    let mut number = 0u64;
    while !stopping.load(Ordering::SeqCst) {
        let created = create(&client, format!("m-{number}"), &ledger).await;
        number += 1;
        let deleted = match created {
            Ok(()) => delete_oldest(&client, &ledger).await,
            Err(e) => Err(e),
        };
        if let Err(e) = deleted {
            println!("metadata change without a proof: {e} ({})", e.as_code());
            client = reconnect(&string, &stopping).await;
        }
    }
}

async fn create(client: &IggyClient, name: String, ledger: &Ledger) -> Result<(), IggyError> {
    let stream = client.create_stream(&name, &StreamCreateOptions::default()).await?;
    let mut ledger = ledger.metadata();
    ledger.created.insert(name, stream.id);
    ledger.changes += 1;
    Ok(())
}

async fn delete_oldest(client: &IggyClient, ledger: &Ledger) -> Result<(), IggyError> {
    let oldest = {
        let mut ledger = ledger.metadata();
        if ledger.created.len() <= ALIVE {
            return Ok(());
        }
        // From here on it may be there or not, until the deletion is acknowledged.
        let name = ledger.created.iter().min_by_key(|(_, id)| **id).map(|(name, _)| name.clone());
        name.and_then(|name| ledger.created.remove(&name).map(|_| name))
    };
    let Some(name) = oldest else { return Ok(()) };
    client.delete_stream(&Identifier::named(&name)?).await?;
    let mut ledger = ledger.metadata();
    ledger.deleted.insert(name);
    ledger.changes += 1;
    Ok(())
}
